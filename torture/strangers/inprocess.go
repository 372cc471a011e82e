package strangers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"carstate/internal/access"
	"carstate/internal/fleet"
	"carstate/internal/query"
	"carstate/internal/vehicle"
	"carstate/torture/row"

	"github.com/prometheus/client_golang/prometheus"
)

// inProcess sends strangers through a query server in this process.
func inProcess(ctx context.Context, a *row.Attempt, strangers int) (err error) {
	tokens, cars := new(access.Tokens), fleet.New()
	d := &queryDoor{vid: "Car1", other: "X1"}
	now := time.Now()
	verdict := fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: vehicle.NormalDriving, Time: vehicle.At(now)},
		Throttle: vehicle.ThrottleVerdict{System: vehicle.ThrottleNormal, Time: vehicle.At(now)},
	}
	cars.Put(vehicle.ID(d.other), verdict)
	for i := range 10_000 {
		cars.Put(vehicle.ID(fmt.Sprint("Car", i)), verdict)
	}
	for secret, vehicles := range map[*string]access.Vehicles{&d.right: access.AllVehicles(), &d.granted: access.VehicleSet("Car1")} {
		t, s, err := access.Issue(access.TokenRequest{Developer: "Ada", Operations: access.AllOperations, Vehicles: vehicles}, now)
		if err != nil {
			return err
		}
		tokens.Put(t)
		*secret = s
	}
	registry := prometheus.NewRegistry()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := query.New(query.Config{Tokens: tokens, Fleet: cars, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Registry: registry})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, server.Shutdown(ending), <-served)
	}()

	const where = "in process"
	heapBefore, seriesBefore, err := measure(registry)
	if err != nil {
		return err
	}
	began := time.Now()
	throughProxy := strangers - strangers/100
	proxy := func(int) net.IP { return net.IPv4(127, 0, 0, 1) }
	if err := crowds(ctx, a, where, listener.Addr().String(), d, 0, throughProxy, crowdSize, proxy); err != nil || ctx.Err() != nil {
		return err
	}
	if err := crowds(ctx, a, where, listener.Addr().String(), d, throughProxy, strangers, 5, ownAddress); err != nil || ctx.Err() != nil {
		return err
	}
	a.Figure(where+": strangers", float64(strangers), "")
	a.Figure(where+": strangers a second", float64(strangers)/time.Since(began).Seconds(), "")
	heapAfter, seriesAfter, err := measure(registry)
	if err != nil {
		return err
	}
	grew(a, where, heapAfter-heapBefore, seriesBefore, seriesAfter)
	return nil
}

// measure is the heap in use after a garbage collection, and the number of series.
func measure(registry *prometheus.Registry) (heap int64, series int, err error) {
	families, err := registry.Gather()
	for _, f := range families {
		series += len(f.GetMetric())
	}
	families = nil
	runtime.GC()
	runtime.GC() // what a pool held is given up only now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse), series, err
}
