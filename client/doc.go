// Package client queries a carstate service: how a car drives, and whether its throttle system is
// healthy. It needs only the standard library.
//
//	c := client.New("http://127.0.0.1:8080", os.Getenv("CARSTATE_TOKEN"))
//	a, err := c.CarDrivingState(ctx, "NHeN4UqVsohGS55I7LBdh")
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Println(a) // traffic jam (3), as of 4 s ago
//
// If the service has no answer about a car, the error is nil, and [Answer.Reason] says why. Every
// error is an [*Error]: one line that says what to do. [errors.Is] tells its kind, such as
// [ErrInvalidToken].
//
// The client accepts a status that is a number or a string, and values outside the documented set
// (see [DrivingState.Unknown]).
//
// A call is tried up to four times, within the time of [WithPatience]: after 429, 502, 503 and 504
// as Retry-After says, and after 50 to 400 ms if the last three have none or the connection fails.
// Waits are partly random, so that clients do not return at one moment, and never pass the deadline
// of the context.
//
// The token is sent in the query, as the interface requires, and must never be sent or shown
// elsewhere: the client follows no redirect, sends no http:// request through a proxy of the
// environment, removes the URL from errors, and hides the token when a [Client] is printed.
package client
