package vehicle

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
)

// measured is what one table came to at one size.
type measured struct {
	bytes      float64       // heap in use a vehicle
	collection time.Duration // CPU of a full collection, beyond that of an empty heap
	left       float64       // heap in use, after nine tenths were forgotten, over that before
	reads      latencies     // while it grew
}

// heapInUse is the heap in use when nothing is left to collect.
func heapInUse() uint64 {
	debug.FreeOSMemory() // collects
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// collectionCPU is the CPU time of a full collection: the least of several, for
// whatever else ran meanwhile only adds to it.
func collectionCPU() time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 5 {
		before := cpu()
		runtime.GC()
		least = min(least, cpu()-before)
	}
	return least
}

// cpu is what this process has used of it.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are right
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func recordAt(i int) record {
	const noon = 1_795_176_000_000
	return record{noon + int64(i), noon - int64(i), uint8(1 + i%3), uint8(i % 2), false}
}

// measure fills a table while it is read, and empties it again.
func measure(ctx context.Context, s subject, vehicles int) (m measured, err error) {
	empty, idle := heapInUse(), collectionCPU()
	t := s.make()
	t.put(vid(0), recordAt(0))
	reading, stop := context.WithCancel(ctx)
	read := make(chan latencies, 1)
	go func() { read <- readOnSchedule(reading, t, vehicles) }()
	for i := 1; i < vehicles && ctx.Err() == nil; i++ {
		t.put(vid(i), recordAt(i))
	}
	stop()
	m.reads = <-read
	full := heapInUse() - min(empty, heapInUse())
	m.bytes = float64(full) / float64(vehicles)
	m.collection = max(0, collectionCPU()-idle)
	for i := vehicles / 10; i < vehicles && ctx.Err() == nil; i++ {
		t.forget(vid(i))
	}
	m.left = float64(heapInUse()-min(empty, heapInUse())) / float64(full)
	runtime.KeepAlive(t)
	return m, ctx.Err()
}

// beside is what the same reads take of a table that does not change, while
// another one is filled: what the machine itself keeps them waiting.
func beside(ctx context.Context, s subject, vehicles int) latencies {
	still, grows := s.make(), s.make()
	still.put(vid(0), recordAt(0))
	reading, stop := context.WithCancel(ctx)
	read := make(chan latencies, 1)
	go func() { read <- readOnSchedule(reading, still, vehicles) }()
	for i := 0; i < vehicles && ctx.Err() == nil; i++ {
		grows.put(vid(i), recordAt(i))
	}
	stop()
	return <-read
}

// readEvery is how often a read is due. One that is late because the one before
// took long counts from when it was due, as a caller would count it.
const readEvery = 10 * time.Microsecond

// readOnSchedule asks for any of the vehicles, there yet or not, until the context
// ends.
func readOnSchedule(ctx context.Context, t table, vehicles int) (l latencies) {
	random := rand.New(rand.NewPCG(1, 2))
	name := []byte(vid(0))
	begin := time.Now()
	for n := time.Duration(0); ; n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return l
		}
		due := n * readEvery
		for time.Since(begin) < due {
			runtime.Gosched() // a reader is not alone on its processor
		}
		setVID(name, random.IntN(vehicles))
		t.get(name)
		l.add(time.Since(begin) - due)
	}
}

// latencies counts how long things took, to 1 %, up to some minutes.
type latencies struct {
	counts [2048]int
	n      int
	most   time.Duration
}

// step is the ratio between two neighbouring counts.
const step = 1.02

func (l *latencies) add(d time.Duration) {
	i := int(math.Log(max(1, float64(d)))/math.Log(step) + 0.5)
	l.counts[min(i, len(l.counts)-1)]++
	l.n++
	l.most = max(l.most, d)
}

// quantile is what so large a part of them did not exceed.
func (l *latencies) quantile(q float64) time.Duration {
	rest := int(math.Ceil(q * float64(l.n)))
	for i, c := range l.counts {
		if rest -= c; rest <= 0 {
			return min(l.most, time.Duration(math.Pow(step, float64(i)+0.5)))
		}
	}
	return l.most
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
