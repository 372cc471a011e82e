package query

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// BenchmarkAnswer is without a connection, from the head to the answer.
func BenchmarkAnswer(b *testing.B) {
	now := time.Now()
	tokens, table := new(access.Tokens), fleet.New()
	for i := range 100_000 {
		table.Put(vehicle.ID(fmt.Sprintf("Car%d", i)), fleet.Answer{
			Driving: vehicle.DrivingVerdict{State: driving.Jam, Time: signal.At(now)},
		})
	}
	issue := func(granted access.Vehicles) (secret string) {
		token, secret, err := access.New(access.Credential{Developer: "bench", Kind: access.TokenKind,
			Vehicles: granted, Operations: access.AllOperations}, now)
		testkit.NoError(b, err)
		tokens.Put(token)
		return secret
	}
	all, one := issue(access.AllVehicles()), issue(access.VehicleSet("CarNormal"))
	bad, _ := access.NewSecret(access.TokenKind)
	s := New(Config{Tokens: tokens, Fleet: table, Ready: func(time.Time) error { return nil },
		Registry: prometheus.NewRegistry()})
	for name, query := range map[string]string{
		"answered":    "vid=Car1&access_token=" + all,
		"unknown":     "vid=Nobody&access_token=" + one,
		"not-granted": "vid=Car1&access_token=" + one,
		"bad-token":   "vid=Car1&access_token=" + bad,
	} {
		b.Run(name, func(b *testing.B) {
			head := []byte("GET " + drivingPath + "?" + query + " HTTP/1.1\r\nHost: localhost:8080\r\n" +
				"User-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n")
			r, e := new(http1.Request), &exchange{of: s}
			b.ReportAllocs()
			for b.Loop() {
				r.Parse(head)
				e.Answer(r, now)
			}
		})
	}
}
