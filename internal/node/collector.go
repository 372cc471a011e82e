package node

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go collects garbage when the heap has grown by a percentage, 100 unless GOGC says
// otherwise. Of a large heap that is much memory, and a collection costs little, because
// states and blocks hold hardly any pointers: with 600,000 vehicles and a flood of samples, 30
// in place of 100 took 684 MB in place of 1,076 at most, and no more processor time. Small
// heaps keep a percentage with which a flood does not collect all the time.
const (
	leastGarbagePercent = 30
	mostGarbagePercent  = 100
	leastGarbageBytes   = 64 << 20
	collectorEvery      = 5 * time.Second
)

// garbagePercent is the percentage for a heap that has so many bytes in use.
func garbagePercent(live uint64) int {
	return int(min(max(leastGarbagePercent, leastGarbageBytes*100/max(live, 1)), mostGarbagePercent))
}

// tuneCollector sets the percentage by what is in use, until ctx ends. If GOGC is set, the
// operator has chosen.
func tuneCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	every := time.NewTicker(collectorEvery)
	defer every.Stop()
	defer debug.SetGCPercent(mostGarbagePercent) // for other nodes of this process, in tests
	for percent := mostGarbagePercent; ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		metrics.Read(live)
		if p := garbagePercent(live[0].Value.Uint64()); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
	}
}
