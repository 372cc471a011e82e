package ingest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

func (q *quota) queued() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, claims := range q.waiting {
		n += len(claims)
	}
	return n
}

func TestQuotaIsNeverExceeded(t *testing.T) {
	q := newQuota(1000)
	var running sync.WaitGroup
	for w := range 8 {
		source := fmt.Sprint(w / 2)
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			stopped := make(chan struct{})
			close(stopped)
			for range 2000 {
				stop := stopped
				if rnd.IntN(2) == 0 {
					stop = nil
				}
				n, ok := q.acquire(source, 1+rnd.IntN(500), stop)
				if used := q.inUse(); used > 1000 || ok && used < n {
					t.Errorf("got %d in use, want %d to 1000", used, n)
				}
				q.release(source, n)
			}
		})
	}
	running.Wait()
	if q.inUse() != 0 || q.queued() != 0 || len(q.held)+len(q.waiting)+len(q.turn) != 0 {
		t.Errorf("in the end: got %d in use and %d waiting, want none; held %v, waiting %v, turn %v",
			q.inUse(), q.queued(), q.held, q.waiting, q.turn)
	}
}

// worst needs the most memory for about n bytes.
func worst(n int) map[string]string {
	fill := func(line string) string {
		return strings.Repeat(line+"\n", min(max(n/(len(line)+1), 1), MaxSamples))
	}
	codes := `{"time":1795147200000,"signals":{"Vehicle.OBD.DTCList":[` +
		strings.TrimSuffix(strings.Repeat(`"P0121",`, maxCodes), ",") + `]}}`
	return map[string]string{
		"samples":    fill(`{"time":1795147200000,"signals":{"Vehicle.Speed":1}}`),
		"codes":      fill(codes),
		"both":       fill(`{"time":1795147200000,"signals":{"Vehicle.OBD.DTCList":["P0120"]}}`),
		"one":        `{"vid":"V1","time":1795147201000,"signals":{"Vehicle.Speed":1}}`,
		"rejections": fill("{}"),
	}
}

// A packet's reservation suffices for all that is decoded from it, and no estimate is too low.
func TestProcessingBytes(t *testing.T) {
	o := origin{source: &access.Grant{Vehicles: access.AllVehicles()}, latest: testLatest, topic: "V1",
		forgotten: func(vehicle.ID) bool { return false }, admit: func(vehicle.ID) bool { return true },
		verdicts: func(vehicle.ID) (d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) { return d, t }}
	for _, n := range []int{100, 3000, 60_000, maxPacket} {
		for name, message := range worst(n) {
			b, err := readers.New().(*reader).messageBatch([]byte(message), o)
			if err != nil {
				t.Fatal(name, err)
			}
			costs := cap(b.samples) * int(unsafe.Sizeof(vehicle.Sample{}))
			for i := range b.samples {
				costs += cap(b.samples[i].Codes) * int(unsafe.Sizeof(signal.TroubleCode{}))
			}
			if costs > b.bytes {
				t.Errorf("%s in %d bytes: got an estimate of %d, want the true cost of %d or more",
					name, len(message), b.bytes, costs)
			}
			if b.accepted == 0 {
				continue
			}
			if reserved := processingBytes(len(message)); len(message)+messageBytes+b.bytes > reserved {
				t.Errorf("%s in %d bytes: the cost of %d exceeds the reservation of %d",
					name, len(message), b.bytes, reserved)
			}
		}
	}
}
