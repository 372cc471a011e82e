package ingest

import (
	"math/rand/v2"
	"sync"
	"testing"

	"carstate/internal/testkit"
)

// queued is how many wait.
func (b *budget) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

func TestBudgetServesInTurn(t *testing.T) {
	b := newBudget(100)
	if !b.tryTake(60) || b.tryTake(41) {
		t.Fatal("60 of 100 are taken, or 101 are")
	}
	never := make(chan struct{})
	large, small := make(chan int), make(chan int)
	go func() { n, _ := b.take(1000, never); large <- n }() // all there is
	testkit.Await(t, "the large one waits", func() bool { return b.queued() == 1 })
	go func() { n, _ := b.take(1, never); small <- n }()
	testkit.Await(t, "the small one waits", func() bool { return b.queued() == 2 })
	if b.tryTake(1) {
		t.Error("someone got past those who wait")
	}
	b.give(60)
	if n := <-large; n != 100 {
		t.Errorf("the large one got %d", n)
	}
	if b.queued() != 1 || b.taken() != 100 {
		t.Errorf("%d wait, %d are taken", b.queued(), b.taken())
	}
	b.give(100)
	if n := <-small; n != 1 || b.taken() != 1 {
		t.Errorf("the small one got %d, and %d are taken", n, b.taken())
	}
}

// Who stops waiting lets those behind pass.
func TestBudgetStop(t *testing.T) {
	b := newBudget(100)
	b.tryTake(50)
	stop, stopped, second := make(chan struct{}), make(chan bool), make(chan bool)
	go func() { _, ok := b.take(60, stop); stopped <- ok }()
	testkit.Await(t, "the first waits", func() bool { return b.queued() == 1 })
	go func() { _, ok := b.take(50, nil); second <- ok }()
	testkit.Await(t, "the second waits", func() bool { return b.queued() == 2 })
	close(stop)
	if <-stopped || !<-second || b.taken() != 100 {
		t.Errorf("%d are taken", b.taken())
	}
}

func TestBudgetIsNeverExceeded(t *testing.T) {
	b := newBudget(1000)
	var running sync.WaitGroup
	for w := range 8 {
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			stopped := make(chan struct{})
			close(stopped)
			for range 2000 {
				stop := stopped // may or may not get it
				if rnd.IntN(2) == 0 {
					stop = nil
				}
				n, ok := b.take(1+rnd.IntN(500), stop)
				if used := b.taken(); used > 1000 || ok && used < n {
					t.Errorf("%d of 1000 are taken", used)
				}
				b.give(n)
			}
		})
	}
	running.Wait()
	if b.taken() != 0 || b.queued() != 0 {
		t.Errorf("%d are taken, %d wait", b.taken(), b.queued())
	}
}
