package scale

import (
	"time"

	"example.org/carstate/bench/report"
)

// The measured slice is one of fleetParts equal parts of a fleet of fleetCars cars. Each car
// reports at the interval reportEvery.
const (
	fleetCars   = 100_000_000
	fleetParts  = 1024
	perBody     = 100 // cars whose samples a gateway sends in one request
	reportEvery = 10 * time.Second
)

// plan says how much is measured.
type plan struct {
	cars       int           // of the slice
	alone      int           // cars on one machine without NATS
	first      time.Duration // duration of the cars' first reports
	steady     time.Duration // duration of the measurement at the full rate
	slow       time.Duration // duration of each other measurement of the slice
	feeds      int           // feeds added
	spread     int           // partitions of the second measurement of the same load
	subjects   int           // vehicles in one stream
	operations int
}

func planFor(quick bool) plan {
	if quick {
		return plan{cars: 20_000, alone: 20_000, first: time.Second, steady: 2 * time.Second, slow: time.Second, feeds: 2,
			spread: 4, subjects: 20_000, operations: 10}
	}
	return plan{
		cars: fleetCars / fleetParts, alone: 100_000, first: reportEvery, steady: time.Minute, slow: 6 * time.Second,
		feeds: 8, spread: 32,
		subjects: 1_000_000, operations: 100,
	}
}

// bench is one run of this part.
type bench struct {
	*report.Part
	plan    plan
	servers *servers
	nodes   int // started so far
}

// micros returns seconds divided by n, in µs.
func micros(seconds, n float64) float64 { return 1e6 * seconds / n }
