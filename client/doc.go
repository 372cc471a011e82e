// Package client asks a carstate service how a car drives and whether its
// throttle system is healthy. It needs the standard library only.
//
//	c := client.New("http://127.0.0.1:8080", os.Getenv("CARSTATE_TOKEN"))
//	a, err := c.CarDrivingState(ctx, "NHeN4UqVsohGS55I7LBdh")
//	if err != nil {
//		log.Fatal(err)
//	}
//	fmt.Println(a) // traffic jam (3), as of 4 s ago
//
// A service that knows no answer is no error: look at Answered, and at Reason
// for why. Every error is an [*Error] of one line that says what to do, and
// [errors.Is] tells its kind: [ErrInvalidToken], [ErrRateLimited] and so on.
//
// The client accepts what the interface allows and what its samples show: a
// status that is a number or a string, and values outside the documented set,
// which keep their text (see [DrivingState.Unknown]).
//
// A call tries again by itself, a few times and within [WithPatience], where
// that can help: after 429, 502, 503 and 504 as late as Retry-After says; soon
// after 502, 503 and 504 without one, which gateways send, and after a connection
// that could not be made or broke. It waits a little
// longer than it has to, by chance, so that many clients do not come back at
// the same moment. It never waits past the deadline of its context.
//
// The access token travels in the query of the request, where the interface
// wants it. This package must never let it go anywhere else: it follows no
// redirect, shows http:// requests to no proxy of the environment, strips the
// URL from errors, and hides the token from whoever prints a [Client].
package client
