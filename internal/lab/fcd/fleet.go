package fcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"example.org/carstate/internal/vehicle"
)

// Fleet describes a fleet file (see the package comment), as [Open] found it.
type Fleet struct {
	// Vehicles are the names of the cars, sorted as text.
	Vehicles []vehicle.ID
	// Readings is the number of samples in the file. A row without any reading is not a sample.
	Readings int
	// First and Last are the times of the first and last sample, counted from the file's time 0.
	First, Last time.Duration
	// WithoutPositions leaves positions, headings and accuracies out of the samples. It may
	// be set after Open.
	WithoutPositions bool

	path   string
	prefix vehicle.ID // see AddPrefix
}

// maxSpan is the maximum time from the first to the last sample of a file. carstate replay adds a
// constant to the times of a file, so that its last sample is at the present. The service refuses
// samples that are older than this maximum.
const maxSpan = 366 * 24 * time.Hour

// Open returns a description of a fleet file. It reads the whole file, to find the names of the
// cars and the times of the first and the last sample, and to check that the file is readable.
// Because [Fleet.Samples] reads the file again, Open refuses a pipe. If ctx has ended, the error is
// ctx.Err. Any other error is a message that can be shown to a user as it is.
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

// AddPrefix puts a prefix before the name of each car, in Vehicles and in the samples.
func (f *Fleet) AddPrefix(prefix string) {
	f.prefix = vehicle.ID(prefix) + f.prefix
	for i, id := range f.Vehicles {
		f.Vehicles[i] = vehicle.ID(prefix) + id
	}
}

// Samples yields a sample for each row, in the order of time. The time of a sample is base plus the
// row's own time. Rows without a reading are left out. It ends after the first error, which it
// yields, and which is as for [Open].
func (f *Fleet) Samples(ctx context.Context, base vehicle.UnixMilli) iter.Seq2[vehicle.Sample, error] {
	return func(yield func(vehicle.Sample, error) bool) {
		in, err := open(f.path)
		if err != nil {
			yield(vehicle.Sample{}, err)
			return
		}
		defer in.Close()
		for x, err := range samples(ctx, in, filepath.Base(f.path), base, f.WithoutPositions) {
			x.Vehicle = f.prefix + x.Vehicle
			if !yield(x, err) {
				return
			}
		}
	}
}

// open opens a file and refuses a pipe, which could not be read twice.
func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	var in *os.File
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; it is read more than once, so name a file and not a pipe",
			filepath.Base(path))
	}
	if err == nil {
		in, err = os.Open(path)
	}
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return nil, fmt.Errorf("%s cannot be read: %w", filepath.Base(path), p.Err)
	}
	return in, err
}

// fleetColumns are the columns of a fleet file. The first neededFleetColumns are required.
var fleetColumns = []string{"vehicle", "time", "latitude", "longitude", "speed", "heading", "accuracy"}

const neededFleetColumns = 5

// fleetSignals are the signals of fleetColumns from the third on.
var fleetSignals = [...]vehicle.Signal{
	vehicle.CurrentLatitude, vehicle.CurrentLongitude, vehicle.Speed, vehicle.CurrentHeading, vehicle.CurrentAccuracy,
}

// samples is like [Fleet.Samples] for a reader; name is the file's name in errors. If speedOnly is
// true, the samples have only the speed.
func samples(ctx context.Context, r io.Reader, name string, base vehicle.UnixMilli,
	speedOnly bool) iter.Seq2[vehicle.Sample, error] {
	return func(yield func(vehicle.Sample, error) bool) {
		last := base
		ordered := func(t *table) (vehicle.Sample, error) {
			x, err := t.sample(base, speedOnly)
			if err == nil && x.Time < last {
				err = t.complain("its time is before that of the row above; sort the file by time")
			}
			last = x.Time
			return x, err
		}
		for x, err := range rows(ctx, r, name, fleetColumns, neededFleetColumns, ordered) {
			if (err != nil || !x.Empty()) && !yield(x, err) {
				return
			}
		}
	}
}

func (t *table) sample(base vehicle.UnixMilli, speedOnly bool) (x vehicle.Sample, err error) {
	if x.Vehicle, err = t.vehicle(0); err != nil {
		return x, err
	}
	at, err := t.time(1)
	if err != nil {
		return x, err
	}
	x.Time = base.Add(at)
	for i, signal := range fleetSignals {
		cell := t.cell(2 + i)
		if cell == "" || speedOnly && signal != vehicle.Speed {
			continue
		}
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil {
			return x, t.complain("%s must be a number, or empty where it was not read", fleetColumns[2+i])
		}
		if err := x.Set(signal, v); err != nil {
			return x, t.complain("%w", err)
		}
	}
	return x, nil
}
