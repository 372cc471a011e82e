//go:build !race

package faults_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/vehicle"
)

// How close did the healthy drives come to each threshold, and with each threshold at 1.8 times the
// maximum of one half of the files, or of the other kinds of car, how many others would be anomalous?
func TestMargins(t *testing.T) {
	if !*table {
		return
	}
	const headroom = 1.8
	type drive struct {
		car, name string
		second    bool // in the second half
	}
	peaks := map[string]map[drive]float64{} // maximum of each measure, as a share of its threshold
	halves := map[string]bool{}             // every other file; the drives of one file are in one half
	for _, d := range recorded(t) {
		if _, known := halves[d.name]; !known {
			halves[d.name] = len(halves)%2 == 1
		}
		var s vehicle.State
		key := drive{d.car, d.name, halves[d.name]}
		for _, x := range d.samples {
			s = vehicle.Observe(s, x)
			for _, f := range s.ExplainThrottle().Facts {
				if math.IsNaN(f.Threshold) {
					continue
				}
				if peaks[f.Name] == nil {
					peaks[f.Name] = map[drive]float64{}
				}
				peaks[f.Name][key] = max(peaks[f.Name][key], f.Value/f.Threshold)
			}
		}
	}
	for _, measure := range slices.Sorted(maps.Keys(peaks)) {
		of := peaks[measure]
		most := func(which func(drive) bool) (top float64, over func(float64) int) {
			for d, p := range of {
				if which(d) {
					top = max(top, p)
				}
			}
			return top, func(threshold float64) (n int) {
				for d, p := range of {
					if which(d) && p >= threshold {
						n++
					}
				}
				return n
			}
		}
		worst := slices.MaxFunc(slices.Collect(maps.Keys(of)), func(a, b drive) int {
			return cmp.Or(cmp.Compare(of[a], of[b]), cmp.Compare(a.name, b.name))
		})
		first, overFirst := most(func(d drive) bool { return !d.second })
		second, overSecond := most(func(d drive) bool { return d.second })
		validated := "never above 0.05: any threshold holds"
		if of[worst] > 0.05 {
			if min(first, second) <= 0.05 {
				validated = "only one half comes near: nothing to set a threshold by"
			} else {
				validated = fmt.Sprintf("halves reach %.2f, %.2f: %d of %d", first, second,
					overSecond(headroom*first)+overFirst(headroom*second), len(of))
			}
		}
		for _, car := range []string{"kit_obd", "carobd", "carobd, A and load", "carobd, A and D", "pyobd", "hil"} {
			mine, overMine := most(func(d drive) bool { return d.car == car })
			others, _ := most(func(d drive) bool { return d.car != car })
			if of[worst] > 0.05 && mine > 0.05 && others > 0.05 {
				validated += fmt.Sprintf("; %s by the others' %.2f: %d", car, others, overMine(headroom*others))
			}
		}
		fmt.Printf("| %s | %.2f (%s/%s) | %s |\n", strings.ReplaceAll(measure, "Vehicle.OBD.", ""), of[worst],
			worst.car, worst.name, validated)
	}
}
