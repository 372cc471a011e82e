package soak

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// slope is that of Theil and Sen: the median of the slopes between all pairs of
// points. Where there are many points, only some are taken.
func slope(x, y []float64) float64 {
	const enough = 1500
	step := len(x)/enough + 1
	var all []float64
	for i := 0; i < len(x); i += step {
		for j := i + step; j < len(x); j += step {
			if x[j] > x[i] {
				all = append(all, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	return median(all)
}

// median is the middle of some values; 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func most(values []float64) float64 { return slices.Max(values) }

// sizeOf is what the files of a directory hold together. Files come and go.
func sizeOf(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += float64(info.Size())
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	return bytes, err
}
