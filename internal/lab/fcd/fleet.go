package fcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

type Fleet struct {
	Vehicles    []vehicle.ID
	Readings    int           // rows with any reading
	First, Last time.Duration // since the file's time 0
	// If WithoutPositions, set after Open, Samples has speeds only.
	WithoutPositions bool

	path   string
	prefix vehicle.ID
}

// maxSpan: carstate replay shifts a file to the present, and the service refuses older samples.
const maxSpan = 366 * 24 * time.Hour

// Open checks the whole file, and [Fleet.Samples] reads it again, so a pipe is refused. An error
// other than that of ctx can be shown to a user.
func Open(ctx context.Context, path string) (*Fleet, error) {
	f := &Fleet{path: path}
	cars := make(map[vehicle.ID]bool)
	for x, err := range f.Samples(ctx, 0) {
		if err != nil {
			return nil, err
		}
		at := x.Time.Sub(0)
		if f.Readings == 0 {
			f.First = at
		}
		f.Readings++
		f.Last = at
		cars[x.Vehicle] = true
	}
	switch {
	case f.Readings == 0:
		return nil, fmt.Errorf("%s: there is no reading in it", filepath.Base(path))
	case f.Last-f.First > maxSpan:
		return nil, fmt.Errorf("%s: its readings span more than a year; split the file", filepath.Base(path))
	}
	f.Vehicles = slices.Sorted(maps.Keys(cars))
	return f, nil
}

func (f *Fleet) AddPrefix(prefix string) {
	f.prefix = vehicle.ID(prefix) + f.prefix
	for i, id := range f.Vehicles {
		f.Vehicles[i] = vehicle.ID(prefix) + id
	}
}

// Samples yields the rows with a reading, and adds base to their times. It ends after an error.
func (f *Fleet) Samples(ctx context.Context, base signal.UnixMilli) iter.Seq2[vehicle.Sample, error] {
	return func(yield func(vehicle.Sample, error) bool) {
		in, err := open(f.path)
		if err != nil {
			yield(vehicle.Sample{}, err)
			return
		}
		defer in.Close()
		last := base
		ordered := func(t *table) (vehicle.Sample, error) {
			x, err := t.sample(base, f.WithoutPositions)
			if err == nil && x.Time < last {
				err = t.complain("its time is before that of the row above; sort the file by time")
			}
			last = x.Time
			return x, err
		}
		for x, err := range rows(ctx, in, filepath.Base(f.path), fleetColumns, neededFleetColumns, ordered) {
			x.Vehicle = f.prefix + x.Vehicle
			if (err != nil || !x.Empty()) && !yield(x, err) {
				return
			}
		}
	}
}

func open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; it is read more than once, so name a file and not a pipe",
			filepath.Base(path))
	}
	in, err := os.Open(path)
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return nil, fmt.Errorf("%s cannot be read: %w", filepath.Base(path), p.Err)
	}
	return in, err
}

var fleetColumns = []string{"vehicle", "time", "latitude", "longitude", "speed", "heading", "accuracy"}

const neededFleetColumns = 5

// fleetSignals are those of fleetColumns, from the third on.
var fleetSignals = [...]signal.Signal{
	signal.CurrentLatitude, signal.CurrentLongitude, signal.Speed, signal.CurrentHeading, signal.CurrentAccuracy,
}

func (t *table) sample(base signal.UnixMilli, speedOnly bool) (x vehicle.Sample, err error) {
	if x.Vehicle, err = t.vehicle(0); err != nil {
		return x, err
	}
	at, err := t.time(1)
	if err != nil {
		return x, err
	}
	x.Time = base.Add(at)
	for i, g := range fleetSignals {
		cell := t.cell(2 + i)
		if cell == "" || speedOnly && g != signal.Speed {
			continue
		}
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil {
			return x, t.complain("%s must be a number, or empty where it was not read", fleetColumns[2+i])
		}
		if err := x.Set(g, v); err != nil {
			return x, t.complain("%w", err)
		}
	}
	return x, nil
}
