package store

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

const compareReaders = 16

func (r *restore) compare(ctx context.Context, file io.ReadSeeker) error {
	ctx, looking := newWorkers(ctx, compareReaders)
	err := r.eachRecord(file, func(rec Record, kind string) error {
		switch {
		case codec.IsSet(rec.Subject): // compared with its credential, which follows
			r.count(kind, access.RestoreCount{}, 1)
			return r.sets.apply(rec)
		case isCredential(kind):
			n, err := r.compareCredential(rec)
			r.count(kind, n, 1)
			return err
		}
		rec.Body = bytes.Clone(rec.Body)
		return looking.start(func() error {
			n, err := r.compareOne(ctx, rec, kind)
			r.count(kind, n, 1)
			return err
		})
	})
	return cmp.Or(err, looking.wait())
}

func (r *restore) compareCredential(rec Record) (n access.RestoreCount, err error) {
	theirs, granted, err := decodeCredential(rec)
	if err != nil {
		return n, err
	}
	r.sets.record(rec.Subject, granted, func(v access.Vehicles) { theirs.Vehicles, _ = r.k.withoutForgotten(v) })
	ours, ok := r.k.tables.Of(theirs.Kind).Get(theirs.Name)
	switch {
	case !ok:
		return access.RestoreCount{Missing: 1}, nil
	case ours.Hash == theirs.Hash && ours.Ended.Equal(theirs.Ended) && ours.Vehicles.All() == theirs.Vehicles.All() &&
		slices.Equal(slices.Collect(ours.Vehicles.Sorted()), slices.Collect(theirs.Vehicles.Sorted())):
		return access.RestoreCount{Equal: 1}, nil
	}
	return access.RestoreCount{Different: 1}, nil
}

func (r *restore) compareOne(ctx context.Context, rec Record, kind string) (n access.RestoreCount, err error) {
	if kind == "state" {
		return r.compareState(ctx, rec)
	}
	is, err := r.k.engine.Last(ctx, cmp.Or(inBatches[kind], streamOf(rec.Subject)), rec.Subject)
	switch {
	case err != nil:
		return n, err
	case is.Seq == 0:
		return access.RestoreCount{Missing: 1}, nil
	case bytes.Equal(is.Body, rec.Body):
		return access.RestoreCount{Equal: 1}, nil
	}
	return access.RestoreCount{Different: 1}, nil
}

func (r *restore) compareState(ctx context.Context, rec Record) (n access.RestoreCount, err error) {
	id, _ := codec.VehicleOfState(rec.Subject)
	theirs, err := codec.DecodeState(rec.Body)
	if err != nil {
		return n, err
	}
	if r.forgotten(id, theirs) {
		return access.RestoreCount{Forgotten: 1}, nil
	}
	ours, ok, err := State(ctx, r.k.engine, id)
	switch {
	case err != nil:
		return n, err
	case !ok:
		return access.RestoreCount{Missing: 1}, nil
	case ours == theirs:
		return access.RestoreCount{Equal: 1}, nil
	case ours.Time > theirs.Time:
		return access.RestoreCount{Newer: 1}, nil
	case ours.Time < theirs.Time:
		return access.RestoreCount{Older: 1}, nil
	}
	return access.RestoreCount{Different: 1}, nil
}
