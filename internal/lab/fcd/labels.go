package fcd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/vehicle"
)

type Label struct {
	Vehicle vehicle.ID
	At      time.Duration // since the file's time 0
	Truth   driving.State
	// Sure is false close to the border to another state.
	Sure bool
}

// maxLabels limits the memory.
const maxLabels = 5_000_000

func ReadLabels(ctx context.Context, path string) ([]Label, error) {
	in, err := open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return labels(ctx, in, filepath.Base(path))
}

var labelColumns = []string{"vehicle", "time", "truth", "sure"}

func labels(ctx context.Context, r io.Reader, name string) ([]Label, error) {
	var all []Label
	for l, err := range rows(ctx, r, name, labelColumns, len(labelColumns), (*table).label) {
		switch {
		case err != nil:
			return nil, err
		case len(all) == maxLabels:
			return nil, fmt.Errorf("%s: there are more than %d labels; split the file", name, maxLabels)
		}
		all = append(all, l)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: there is no label in it", name)
	}
	slices.SortStableFunc(all, func(a, b Label) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}

func (t *table) label() (l Label, err error) {
	if l.Vehicle, err = t.vehicle(0); err != nil {
		return l, err
	}
	if l.At, err = t.time(1); err != nil {
		return l, err
	}
	switch t.cell(2) {
	case "normal":
		l.Truth = driving.Normal
	case "slow":
		l.Truth = driving.Slow
	case "jam":
		l.Truth = driving.Jam
	default:
		return l, t.complain("truth must be normal, slow or jam")
	}
	switch t.cell(3) {
	case "0":
	case "1":
		l.Sure = true
	default:
		return l, t.complain("sure must be 0 or 1")
	}
	return l, nil
}
