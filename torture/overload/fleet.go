package overload

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/load"
	"carstate/torture/row"
)

// fleet is the cars whose telemetry overloads a node, and what was acknowledged of
// it. What a car sends follows from the number of the request: a sample for each
// second of its own time, and after enough of them another takes its place. So what
// is lost cannot hide for long behind what the same car sends later.
type fleet struct {
	load  *load.Load // keeps the journal, and holds a node to it
	begin int64      // when each car's time begins, Unix s
	taken atomic.Int64
}

// drives is how many samples a car sends before another takes its place.
const drives = 1000

func newFleet(a *row.Attempt) *fleet {
	return &fleet{load: load.New(a), begin: time.Now().Add(-time.Hour).Unix()}
}

// sample is the car and the time of a sample, by its number. There are always as
// many cars as ever; one after the other is replaced.
func (f *fleet) sample(number int) (vid string, at int64) {
	place, turn := number%cars, number/cars
	turn += place * drives / cars
	return fmt.Sprintf("Car%dx%d", place, turn/drives), f.begin + int64(turn%drives)
}

// body is the telemetry of a request, which is about to be sent.
func (f *fleet) body(request int) (b []byte) {
	for i := range batch {
		vid, at := f.sample(request*batch + i)
		f.load.NoteOffered(vid, at)
		b = line(b, vid, at*1000)
	}
	return b
}

// acknowledged notes that a request was.
func (f *fleet) acknowledged(request int) {
	f.taken.Add(1)
	for i := range batch {
		f.load.NoteAcknowledged(f.sample(request*batch + i))
	}
}

// prepare is [telemetry] of this fleet.
func (f *fleet) prepare(ctx context.Context, n *nodeprocess.Node) (*crowd, error) {
	if err := f.load.Prepare(ctx, n); err != nil {
		return nil, err
	}
	return telemetry(ctx, n, f)
}

// hold holds a node to all that was acknowledged.
func (f *fleet) hold(ctx context.Context, v *victim) error {
	vids := f.load.Vehicles()
	v.a.Figure(v.what+": cars whose newest acknowledged sample was looked for", float64(len(vids)), "")
	return f.load.HoldVehicles(ctx, v.n, vids)
}

// kills is how often a node is killed amid telemetry: what was acknowledged and was
// not stored yet does not show every time.
const kills = 10

// amid is how long users go on before the node is killed.
const amid = time.Second

// cut kills a node amid as much telemetry as it can take, starts it again and holds it
// to what it had acknowledged, again and again.
func (f *fleet) cut(ctx context.Context, v *victim) error {
	users := closedUsers[len(closedUsers)-1]
	for range kills {
		counts := false
		v.crowd.counting = func() {
			if counts {
				v.n.Kill()
			}
			counts = true
		}
		v.judge(v.what+": ", v.crowd.closedLoop(ctx, users, amid, amid/10))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := f.load.Start(ctx, v.options)
		if err != nil {
			return err
		}
		v.n, v.crowd.addr = n, n.Address(nodeprocess.Ingest)
		if err := f.load.HoldVehicles(ctx, n, f.load.Vehicles()); err != nil {
			return err
		}
		if err := v.confine(); err != nil {
			return err
		}
	}
	v.a.Figure(v.what+": kills", kills, "")
	v.a.Figure(v.what+": requests of telemetry that were acknowledged", float64(f.taken.Load()), "")
	v.a.Figure(v.what+": cars whose newest acknowledged sample was looked for each time", float64(len(f.load.Vehicles())), "")
	return nil
}
