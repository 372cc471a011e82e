// Package client queries a carstate service. It asks how a car drives, and whether its throttle
// system is healthy. It needs only the standard library.
//
//	c := client.New("http://127.0.0.1:8080", os.Getenv("CARSTATE_TOKEN"))
//	a, err := c.CarDrivingState(ctx, "NHeN4UqVsohGS55I7LBdh")
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Println(a) // traffic jam (3), as of 4 s ago
//
// If the service has no answer about a car, the error is nil: check [Answer.Answered]; if it
// returns false, [Answer.Reason] says why there is no answer. Every error is an [*Error] whose
// message is one line and says what to do. [errors.Is] reports the kind of the error:
// [ErrInvalidToken], [ErrRateLimited] and so on.
//
// The client accepts everything that the interface allows or its samples show. This includes a
// status that is a number or a string, and values outside the documented set, which keep their text
// (see [DrivingState.Unknown]).
//
// If a retry can help, a call is tried up to four times, within the time of [WithPatience]. After
// the statuses 429, 502, 503 and 504 with Retry-After, the call waits for the time in Retry-After.
// After 502, 503 and 504 without Retry-After, as gateways send them, and after a connection that
// failed or broke, it retries after 50 to 400 ms. A random part is added to each wait, so that many
// clients do not return at the same moment. A call never waits past the deadline of its context.
//
// The access token is sent in the query of the request, as the interface requires. This
// package must never send or show it anywhere else: it follows no redirect, sends no http://
// request through a proxy of the environment, removes the URL from errors, and hides the
// token when a [Client] is printed.
package client
