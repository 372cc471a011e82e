package ingest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"example.org/carstate/internal/testkit"
)

// queued returns the number of waiting claims (requests for memory).
func (q *quota) queued() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, claims := range q.waiting {
		n += len(claims)
	}
	return n
}

func TestQuotaServesInTurn(t *testing.T) {
	q := newQuota(100)
	if !q.tryAcquire("a", 60) || q.tryAcquire("b", 41) {
		t.Fatal("tryAcquire: want 60 of 100 acquired, and 41 more refused")
	}
	never := make(chan struct{})
	large, small := make(chan int), make(chan int)
	go func() { n, _ := q.acquire("b", 1000, never); large <- n }() // more than the quota has
	testkit.Await(t, "the large claim waits", func() bool { return q.queued() == 1 })
	go func() { n, _ := q.acquire("c", 1, never); small <- n }()
	testkit.Await(t, "the small claim waits", func() bool { return q.queued() == 2 })
	if q.tryAcquire("d", 1) {
		t.Error("a new claim overtook waiting ones")
	}
	q.release("a", 60)
	if n := <-large; n != 100 {
		t.Errorf("the large claim: got %d, want 100", n)
	}
	if q.queued() != 1 || q.inUse() != 100 {
		t.Errorf("got %d waiting and %d in use, want 1 and 100", q.queued(), q.inUse())
	}
	q.release("b", 100)
	if n := <-small; n != 1 || q.inUse() != 1 {
		t.Errorf("the small claim: got %d with %d in use, want 1 and 1", n, q.inUse())
	}
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
				stop := stopped // acquire may succeed or stop
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
