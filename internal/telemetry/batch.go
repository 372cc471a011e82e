package telemetry

import (
	"cmp"
	"slices"
	"sync"
	"unsafe"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

type Batch struct {
	Report                          // Answer completes it
	Samples        []vehicle.Sample // with a reading, each vehicle's by time
	Refused        [access.SampleRefusals]int
	First          *Refusal
	IgnoredTotal   int                        // unknown signals
	UnusedByReason [access.SampleRefusals]int // values, by one of UnusedKinds
	Source         *access.Grant
	Bytes          int // estimated memory, rather too high
}

const (
	MaxSamples = access.MaxBatch
	MaxSample  = 64 << 10 // bytes
	MaxMapped  = 1 << 20  // bytes
)

// Growth is the most bytes of memory of a batch for each byte of a message.
const Growth = 9

// Estimated memory, in bytes.
const (
	// Times 3: a growing slice has spare capacity, and joined messages are copied.
	sampleBytes    = 3 * int(unsafe.Sizeof(vehicle.Sample{}))
	codeBytes      = int(unsafe.Sizeof(signal.TroubleCode{})) + 1
	rejectionBytes = 500
	ignoredBytes   = 128 // with the suggested name
)

// A pool, because a Batch is larger than most messages.
var batches = sync.Pool{New: func() any { return new(Batch) }}

func (b *Batch) Free() {
	*b = Batch{}
	batches.Put(b)
}

func (b *Batch) Size() int { return b.Accepted + b.RefusedTotal() }

func (b *Batch) RefusedTotal() int {
	n := 0
	for _, k := range b.Refused {
		n += k
	}
	return n
}

// hopeless ends a batch whose first 999 lines are refused.
func (b *Batch) hopeless(n int) bool {
	if b.Accepted > 0 || len(b.Rejected) != maxRejections-1 {
		return false
	}
	b.reject(n+1, NewRefusal(b.First.Kind, "all lines before this one were refused, so no more are read"))
	return true
}

func (b *Batch) reject(line int, r *Refusal) {
	b.Refused[r.Kind]++
	if b.First == nil {
		b.First = r
	}
	if len(b.Rejected) < maxRejections {
		b.Rejected = append(b.Rejected, Rejection{line, r.Text})
		b.Bytes += rejectionBytes
	}
}

// Join adds other without the lists of its report, and frees it. The caller must call Sort after the
// last Join.
func (b *Batch) Join(other *Batch) {
	b.Samples = append(b.Samples, other.Samples...)
	b.Accepted += other.Accepted
	b.Late += other.Late
	b.IgnoredTotal += other.IgnoredTotal
	b.First = cmp.Or(other.First, b.First)
	for k, n := range other.Refused {
		b.Refused[k] += n
		b.UnusedByReason[k] += other.UnusedByReason[k]
	}
	other.Free()
}

// Sort is needed because folding ignores a vehicle's samples that are out of order.
func (b *Batch) Sort() {
	byTime := func(x, y vehicle.Sample) int { return cmp.Compare(x.Time, y.Time) }
	if !slices.IsSortedFunc(b.Samples, byTime) && !b.sortedByVehicle() {
		slices.SortStableFunc(b.Samples, byTime)
	}
}

// sortedByVehicle is often true of a gateway's batch, which has car after car. Sorting it would take
// a quarter of the time of decoding.
func (b *Batch) sortedByVehicle() bool {
	last := make(map[vehicle.ID]signal.UnixMilli) // end of each vehicle's last run
	for i := 1; i < len(b.Samples); i++ {
		x, y := &b.Samples[i-1], &b.Samples[i]
		if x.Vehicle == y.Vehicle {
			if y.Time < x.Time {
				return false
			}
			continue
		}
		last[x.Vehicle] = x.Time
		if before, ok := last[y.Vehicle]; ok && y.Time < before {
			return false
		}
	}
	return true
}
