package simulate

import (
	"context"
	"reflect"
	"testing"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/lab/faults"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestScoreBoard(t *testing.T) {
	said := func(s client.DrivingState) client.DrivingAnswer { return client.DrivingAnswer{State: s} }
	on := func(s driving.State, share float64) known {
		return known{Driving: s, LimitKmh: 50, OfFreeFlow: share, Since: time.Minute, now: 90 * time.Second}
	}
	b := newScoreBoard(2)
	b.driving(on(driving.Normal, 1.2), said(client.NormalDriving))
	b.driving(on(driving.Jam, 0.05), said(client.TrafficJam))
	b.driving(on(driving.Jam, 0.25), said(client.NormalDriving))
	old := on(driving.Slow, 0.45)
	old.now = 5 * time.Minute
	b.driving(old, client.DrivingAnswer{})
	b.driving(known{}, said(client.TrafficJam)) // in a side street: no truth
	b.driving(known{Parked: true}, client.DrivingAnswer{Reason: client.ReasonNotDriving})
	b.driving(known{Parked: true}, said(client.NormalDriving))
	off := time.Unix(1_000_000, 0)
	before := client.DrivingAnswer{State: client.NormalDriving, AsOf: off.Add(-time.Second)}
	b.driving(known{Parked: true, latest: off}, before) // the sample that says it is parked is not folded yet
	b.driving(known{Parked: true, latest: off, ended: true}, before)
	b.driving(known{Parked: true, latest: off}, client.DrivingAnswer{Reason: client.ReasonNotDriving}) // it has no time
	b.driving(known{latest: off}, before)                                                              // no truth
	b.driving(known{Parked: true, latest: off}, client.DrivingAnswer{State: client.NormalDriving, AsOf: off})
	if want := [3][4]int{{0, 1, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 1}}; b.Confusion != want ||
		b.byRoad[50].Confusion != want || b.Accuracy != 0.5 {
		t.Errorf("got %+v, want the confusion %v in all and at 50 km/h, accuracy 0.5", b, want)
	}
	if b.ByFlow != [10][4]int{0: {3: 1}, 2: {1: 1}, 4: {0: 1}, 9: {1: 1}} || b.Disagreed != 2 || b.SoonAfter != 1 ||
		b.ParkedOtherwise != 3 || b.ParkedRight != 2 || b.Behind != 1 {
		t.Errorf("got %+v, want 2 disagreed, 1 of them soon, 3 and 2 parked, 1 behind", b)
	}

	anomaly, normal := client.ThrottleAnswer{System: client.ThrottleAnomaly},
		client.ThrottleAnswer{System: client.ThrottleNormal}
	f := &standingFault{observable: 5 * time.Minute}
	b.throttle(0, known{now: 4 * time.Minute}, normal)
	b.throttle(0, known{now: 5 * time.Minute, fault: f}, normal)
	b.throttle(0, known{now: 7 * time.Minute, fault: f}, anomaly)
	b.throttle(0, known{now: 8 * time.Minute, fault: f}, anomaly)
	b.throttle(0, known{now: 9 * time.Minute, mended: 8 * time.Minute}, anomaly) // it may not have recovered yet
	b.throttle(1, known{now: 9 * time.Minute}, anomaly)
	b.throttle(1, known{now: 9 * time.Minute}, anomaly) // the same alarm
	b.throttle(1, known{now: 10 * time.Minute}, client.ThrottleAnswer{})
	b.throttle(1, known{now: 11 * time.Minute}, anomaly)
	if b.Faulty != (throttleCounts{0, 1, 2}) || b.Healthy != (throttleCounts{1, 1, 3}) || b.FalseAlarms != 2 ||
		f.asked != 2 || f.found != 7*time.Minute {
		t.Errorf("got %+v, %+v, want 2 false alarms and a fault found after 7 min and 2 questions", b, f)
	}
}

func TestFaultBook(t *testing.T) {
	testkit.Slow(t, "it drives 100 cars for four hours")
	const cars, hours, perHour = 100, 4, 0.5
	b := newFaultBook(cars, perHour, 1)
	kinds := make(map[faults.Kind]int)
	changed := 0
	for at := time.Duration(0); at < hours*time.Hour; at += 5 * time.Second {
		for car := range cars {
			var r signal.Readings
			plate := 20 + 10*float64(at/(30*time.Second)%3)
			for _, g := range faultySensors {
				testkit.NoError(t, r.Set(g, plate))
			}
			healthy := r
			b.apply(car, at, &r)
			if !reflect.DeepEqual(r, healthy) {
				changed++
				if b.cars[car].now == nil {
					t.Fatalf("a healthy car: got the readings %+v, want %+v", r, healthy)
				}
			}
		}
	}
	for _, f := range b.all {
		kinds[f.fault.Kind]++
		if f.begun <= firstFault || f.until-f.begun < shortestFault {
			t.Errorf("a fault: got %s to %s, want it after %s, for %s", f.begun, f.until, firstFault, shortestFault)
		}
	}
	// A car has a fault for about 5 minutes of an hour, and no second one in that time.
	if n := len(b.all); n < cars*hours*perHour*3/4 || n > cars*hours*perHour*5/4 || len(kinds) != faults.NumKinds ||
		changed == 0 {
		t.Errorf("got %d faults of %d kinds, %d readings changed, want about %.0f, %d, some", len(b.all), len(kinds),
			changed, cars*hours*perHour, faults.NumKinds)
	}
}

// All readings before the context ends are acknowledged before Run returns.
func TestSimulationFlushes(t *testing.T) {
	s := New(Config{Vehicles: 30, PerSecond: 5, Seed: 1, Backdate: time.Minute, Prefix: "SIM"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taken := make(chan int, 1000)
	door := slowDoor{taken, cancel}
	testkit.NoError(t, s.Run(ctx, door, door, door, door))
	close(taken)
	sum := 0
	for n := range taken {
		sum += n
	}
	if int64(sum) != s.handed.Load() || s.acknowledged.Load() != s.handed.Load() || sum == 0 {
		t.Errorf("got %d handed, %d taken, %d acknowledged, want one sum", s.handed.Load(), sum, s.acknowledged.Load())
	}
}

type slowDoor struct {
	taken chan<- int
	end   func()
}

func (d slowDoor) Send(_ context.Context, samples []vehicle.Sample) error {
	d.end()
	d.taken <- len(samples)
	return nil
}
func (d slowDoor) Door() string { return "a test" }
func (d slowDoor) Close()       {}
