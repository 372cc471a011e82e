package query

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	carstate "example.org/carstate/internal/query"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

const (
	path       = "/api/ic/if_dt_tflow_car_driving_state"
	bodyBefore = `{"code":200,"msg":"success","data":{"vid":"`
	bodyAfter  = `","status":1,"vehicle_runing_state":"1"}}`
)

func Self(args []string, stdout io.Writer) (err error) {
	defer must.Catch(&err)
	switch args[0] {
	case "generate":
		generateMain(args[1:], stdout)
	case "table":
		tableMain(args[1:], stdout)
	default:
		must.Fail("the bench has no program %q", args[0])
	}
	return nil
}

// Ten million vehicles would take hours to report.
func tableMain(args []string, stdout io.Writer) {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	vehicles := flags.Int("vehicles", 1000, "")
	tokens := flags.Int("tokens", 1, "")
	targets := flags.String("targets", "", "file to write")
	must.Do(flags.Parse(args))
	c := carstate.Config{
		Tokens: new(access.Tokens), Fleet: fleet.New(), MaxAge: 24 * time.Hour,
		Ready: func(time.Time) error { return nil },
		Log:   slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	}
	now := time.Now()
	for i := range *vehicles {
		c.Fleet.Put(vidOf(i), fleet.Answer{
			Driving:  vehicle.DrivingVerdict{State: driving.Normal, Time: signal.At(now)},
			Throttle: vehicle.ThrottleVerdict{System: throttle.Normal, Time: signal.At(now)},
		})
	}
	secrets := make([]string, *tokens)
	for i := range secrets {
		t, secret := must.Get2(access.New(access.Credential{Kind: access.TokenKind,
			Developer: "bench", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
			Expires: now.Add(24 * time.Hour), Rate: access.Rate{Calls: 1_000_000, Window: time.Second},
		}, now))
		c.Tokens.Put(t)
		secrets[i] = secret
	}
	writeTargets(*targets, secrets, *vehicles)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	must.Get(fmt.Fprintln(stdout, l.Addr()))
	must.Do(carstate.New(c).Serve(l))
}

// The data of spread vehicles does not fit into the caches.
const spread = 100_000

func writeTargets(file string, tokens []string, vehicles int) {
	var b bytes.Buffer
	for i := range spread {
		// The factor is coprime to the number of vehicles, so each is chosen once before any is
		// again.
		n := int(uint64(i) * 7_368_787 % uint64(vehicles))
		fmt.Fprintf(&b, "%s?access_token=%s&vid=%s\n", path, tokens[i%len(tokens)], vidOf(n))
	}
	must.Do(os.WriteFile(file, b.Bytes(), 0o600))
}

func vidOf(i int) vehicle.ID {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n := uint64(i)*0x9e3779b97f4a7c15 + 1 // multiplication by an odd number is injective
	var b [21]byte
	m := n
	for j := range b {
		b[j] = digits[m%62]
		if m /= 62; m == 0 {
			m = ^n
		}
	}
	return vehicle.ID(b[:])
}
