package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/carstate/client"
)

func Example() {
	service := serve(`200 OK
Date: Fri, 20 Nov 2026 12:00:02 GMT
Last-Modified: Fri, 20 Nov 2026 11:59:58 GMT

{"code":200,"msg":"success","data":{"vid":"NHeN4UqVsohGS55I7LBdh","status":1,"vehicle_runing_state":"3"}}`)
	defer service.Close()

	c := client.New(service.URL, "cst_…")
	a, err := c.CarDrivingState(context.Background(), "NHeN4UqVsohGS55I7LBdh")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a)
	// Output: traffic jam (3), as of 4 s ago
}

func ExampleClient_CarDrivingState() {
	service := serve(`200 OK
Carstate-Reason: stale

{"code":200,"msg":"success","data":{"vid":"NHeN4UqVsohGS55I7LBdh","status":0,"vehicle_runing_state":"0"}}`)
	defer service.Close()

	c := client.New(service.URL, "cst_…")
	a, err := c.CarDrivingState(context.Background(), "NHeN4UqVsohGS55I7LBdh")
	switch {
	case err != nil:
		fmt.Println("no answer at all:", err)
	case !a.Answered():
		fmt.Println("the service does not know:", a.Reason)
	case a.State == client.TrafficJam:
		fmt.Println("stuck, as of", a.AsOf.Local())
	case a.State.Unknown():
		fmt.Println("newer than this program:", string(a.State))
	default:
		fmt.Println("moving:", a.State)
	}
	// Output: the service does not know: the last reading is too old (stale)
}

func ExampleClient_ThrottleSystem() {
	service := serve(`200 OK
Date: Fri, 20 Nov 2026 12:00:00 GMT
Last-Modified: Fri, 20 Nov 2026 11:58:30 GMT

{"code":200,"msg":"success","data":{"vid":"NHeN4UqVsohGS55I7LBdh","status":1,"throttle_system":"0"}}`)
	defer service.Close()

	c := client.New(service.URL, "cst_…")
	a, err := c.ThrottleSystem(context.Background(), "NHeN4UqVsohGS55I7LBdh")
	if err != nil {
		fmt.Println(err)
		return
	}
	if a.System == client.ThrottleAnomaly {
		fmt.Printf("call the workshop: seen %s before the answer\n", a.Age)
	}
	// Output: call the workshop: seen 1m30s before the answer
}

func ExampleError() {
	service := serve(`429 Too Many Requests
Retry-After: 30

{"code":429,"msg":"rate_limited: the policy of this token allows 2 calls in 60 s: wait 30 s","data":null}`)
	defer service.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := client.New(service.URL, "cst_…")
	_, err := c.CarDrivingState(ctx, "NHeN4UqVsohGS55I7LBdh")
	var e *client.Error
	switch {
	case errors.Is(err, client.ErrInvalidToken):
		fmt.Println("ask for a new token:", err)
	case errors.Is(err, client.ErrRateLimited) && errors.As(err, &e):
		fmt.Println("come back in", e.RetryAfter)
	}
	// Output: come back in 30s
}

func ExampleClient_String() {
	fmt.Println(client.New("https://cars.example", "cst_secret"))
	// Output: carstate client of https://cars.example, token hidden
}
