package fcd

import (
	"cmp"
	"context"
	"fmt"
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

const maxLabels = 5_000_000

var labelColumns = []string{"vehicle", "time", "truth", "sure"}

var truths = map[string]driving.State{"normal": driving.Normal, "slow": driving.Slow, "jam": driving.Jam}

func ReadLabels(ctx context.Context, path string) (all []Label, _ error) {
	in, err := open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	name := filepath.Base(path)
	for l, err := range rows(ctx, in, name, labelColumns, len(labelColumns), (*table).label) {
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
	if l.Truth = truths[t.cell(2)]; l.Truth == 0 {
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
