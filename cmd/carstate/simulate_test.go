package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"carstate/client"
	"carstate/internal/lab/faults"
	"carstate/internal/vehicle"
)

// TestSimulate drives a fleet with many faults and looks at how the verdicts agree
// with the truth.
func TestSimulate(t *testing.T) {
	p := start(t, t.TempDir())
	var r simulationReport
	out := p.carstate(t, "simulate", "--vehicles", "60", "--backdate", "9m", "--duration", "20s", "--faults", "20", "--free-flow", "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Vehicles != 60 || r.Seconds < 560 || r.Acknowledged < 60*560*3/4 || r.Refused != 0 || r.FailedQueries != 0 {
		t.Errorf("%+v", r)
	}
	d, th := r.Driving, r.Throttle
	if d == nil || th == nil {
		t.Fatalf("nothing was compared: %s", out)
	}
	rows := 0
	for _, road := range d.Roads {
		rows += road.Rows
	}
	for _, tenth := range d.ByFlow {
		for _, n := range tenth {
			rows += n
		}
	}
	if d.Rows < 60 || rows != 2*d.Rows || len(d.Roads) != 3 {
		t.Errorf("the tables do not count the same answers: %+v", d)
	}
	// Verdicts follow the road: what is wrong for longer than a minute is rare. How rare is
	// told in docs/simulate.md.
	if wrong := d.Disagreed - d.SoonAfter; wrong > d.Rows/8 {
		t.Errorf("%d of %d answers are wrong, and not for a change of the road's state: %+v", wrong, d.Rows, d.Confusion)
	}
	if d.ParkedRight == 0 || d.ParkedOtherwise > d.ParkedRight/5 {
		t.Errorf("parked: %d right, %d not", d.ParkedRight, d.ParkedOtherwise)
	}
	begun := 0
	for _, k := range th.Kinds {
		begun += k.Begun
	}
	if begun < 10 || th.Recall < 0.8 || th.Precision < 0.9 || th.Healthy.Normal == 0 || th.Faulty.Anomaly == 0 {
		t.Errorf("throttle: %+v", th)
	}
}

// drive starts a fleet and waits until it is on the road, and no longer in the past.
func drive(t *testing.T, p *process, cmd *exec.Cmd, token string) (ended chan error, stdout, stderr *bytes.Buffer) {
	t.Helper()
	ended, stdout, stderr = make(chan error, 1), new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	began := time.Now().Truncate(time.Second)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	if err := until(30*time.Second, func() error {
		a, err := p.ask(drivingPath, token, "SIM00000")
		if err == nil && (a.Status != 1 || a.Modified.Before(began)) {
			err = errors.New("the fleet is not on the road")
		}
		return err
	}); err != nil {
		cmd.Process.Kill()
		t.Fatalf("%v\n%s", err, stderr)
	}
	return ended, stdout, stderr
}

// TestSimulateInterrupted: Ctrl-C ends a fleet that would drive for ever, with its
// report, and takes away what was temporary.
func TestSimulateInterrupted(t *testing.T) {
	p := start(t, t.TempDir())
	cmd := exec.Command(binary, "simulate", "--vehicles", "20", "--backdate", "1m")
	cmd.Env = p.env()
	ended, stdout, stderr := drive(t, p, cmd, p.issue(t))
	cmd.Process.Signal(syscall.SIGINT)
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if !strings.HasPrefix(stdout.String(), "20 cars drove for 1m") || !strings.Contains(stdout.String(), " 0 refused") {
		t.Errorf("it reported %q", stdout)
	}
	if list := p.carstate(t, "source", "list"); !strings.Contains(list, "no source yet") {
		t.Errorf("it left a source: %s", list)
	}
}

// TestSimulateOutage: a service that goes away ends the fleet with one line, after
// the report.
func TestSimulateOutage(t *testing.T) {
	p := start(t, t.TempDir())
	token, key := p.issue(t), p.addSource(t, "gateway")
	cmd := exec.Command(binary, "simulate", "--vehicles", "20", "--source", "gateway", "--key", key, "--json")
	cmd.Env = append(p.env(), "CARSTATE_TOKEN="+token)
	ended, stdout, stderr := drive(t, p, cmd, token)
	p.Kill()
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != exitError {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
	var r simulationReport
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || r.Acknowledged == 0 {
		t.Errorf("%v, %q", err, stdout)
	}
	// It may have told how far it is before.
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(stderr.String()), "\n"), func(l string) bool { return strings.Contains(l, "samples/s acknowledged") })
	if text := strings.Join(lines, "\n"); !strings.HasPrefix(text, "carstate: ") || strings.Contains(text, "\n") {
		t.Errorf("not one clear line: %q", text)
	}
	if text := stderr.String(); strings.Contains(text, key) || strings.Contains(text, token) {
		t.Errorf("a secret is in %q", text)
	}
}

// TestScoreBoard counts by hand.
func TestScoreBoard(t *testing.T) {
	said := func(s client.DrivingState) client.DrivingAnswer { return client.DrivingAnswer{State: s} }
	on := func(s vehicle.DrivingState, share float64) known {
		return known{Driving: s, LimitKmh: 50, OfFreeFlow: share, Since: time.Minute, now: 90 * time.Second}
	}
	b := newScoreBoard(2)
	b.driving(on(vehicle.NormalDriving, 1.2), said(client.NormalDriving))
	b.driving(on(vehicle.TrafficJam, 0.05), said(client.TrafficJam))
	b.driving(on(vehicle.TrafficJam, 0.25), said(client.NormalDriving))
	old := on(vehicle.SlowDriving, 0.45)
	old.now = 5 * time.Minute
	b.driving(old, client.DrivingAnswer{})
	b.driving(known{}, said(client.TrafficJam)) // in a side street: no truth
	b.driving(known{Parked: true}, client.DrivingAnswer{Reason: client.ReasonNotDriving})
	b.driving(known{Parked: true}, said(client.NormalDriving))
	if want := [3][4]int{{0, 1, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 1}}; b.Confusion != want || b.byRoad[50].Confusion != want || b.Accuracy != 0.5 {
		t.Errorf("%+v", b)
	}
	if b.byFlow != [10][4]int{0: {3: 1}, 2: {1: 1}, 4: {0: 1}, 9: {1: 1}} || b.disagreed != 2 || b.soon != 1 || b.parked != [2]int{1, 1} {
		t.Errorf("%+v", b)
	}

	anomaly, normal := client.ThrottleAnswer{System: client.ThrottleAnomaly}, client.ThrottleAnswer{System: client.ThrottleNormal}
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
	if b.faulty != (throttleCounts{0, 1, 2}) || b.healthy != (throttleCounts{1, 1, 3}) || b.falseAlarms != 2 || f.asked != 2 || f.found != 7*time.Minute {
		t.Errorf("%+v, %+v", b, f)
	}
}

// TestFaultBook: faults come at the rate that was asked for, stay for a while, and go.
func TestFaultBook(t *testing.T) {
	const cars, hours, perHour = 100, 4, 0.5
	b := newFaultBook(cars, perHour, 1)
	kinds := make(map[faults.Kind]int)
	changed := 0
	for at := time.Duration(0); at < hours*time.Hour; at += 5 * time.Second {
		for car := range cars {
			var r vehicle.Readings
			plate := 20 + 10*float64(at/(30*time.Second)%3)
			for _, g := range faultySensors {
				if err := r.Set(g, plate); err != nil {
					t.Fatal(err)
				}
			}
			healthy := r
			if err := b.apply(car, at, &r); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(r) != fmt.Sprint(healthy) {
				changed++
				if b.cars[car].now == nil {
					t.Fatal("a healthy car's readings were changed")
				}
			}
		}
	}
	for _, f := range b.all {
		kinds[f.fault.Kind]++
		if f.begun <= firstFault || f.ended != 0 && f.ended-f.begun < shortestFault {
			t.Errorf("a fault from %s to %s", f.begun, f.ended)
		}
	}
	// A car with a fault gets no other: of an hour, 5 minutes are so taken.
	if n := len(b.all); n < cars*hours*perHour*3/4 || n > cars*hours*perHour*5/4 || len(kinds) != faults.NumKinds || changed == 0 {
		t.Errorf("%d faults of %d kinds, %d readings changed", len(b.all), len(kinds), changed)
	}
	if b.standing() == 0 || b.standing() > cars/3 {
		t.Errorf("%d cars have a fault now", b.standing())
	}
}

// TestSimulationFlushes: what a fleet has read when it is told to end is
// acknowledged before it does.
func TestSimulationFlushes(t *testing.T) {
	s := newSimulation(&trafficFlags{Vehicles: 30, Rate: 5, Seed: 1, Backdate: time.Minute, Prefix: "SIM"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taken := make(chan int, 1000)
	for range simulationLanes {
		s.doors = append(s.doors, slowDoor{taken, cancel})
	}
	if err := s.run(ctx); err != nil {
		t.Fatal(err)
	}
	close(taken)
	sum := 0
	for n := range taken {
		sum += n
	}
	if int64(sum) != s.handed.Load() || s.acknowledged.Load() != s.handed.Load() || sum == 0 {
		t.Errorf("%d handed over, %d taken, %d acknowledged", s.handed.Load(), sum, s.acknowledged.Load())
	}
}

// slowDoor ends the fleet with the first batch that it gets, and takes that and all
// others.
type slowDoor struct {
	taken chan<- int
	end   func()
}

func (d slowDoor) send(_ context.Context, samples []vehicle.Sample) error {
	d.end()
	d.taken <- len(samples)
	return nil
}
func (d slowDoor) door() string { return "a test" }
func (d slowDoor) close()       {}
