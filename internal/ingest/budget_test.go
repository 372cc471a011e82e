package ingest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"carstate/internal/testkit"
)

// queued returns the number of waiting claims.
func (b *budget) queued() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, claims := range b.waiting {
		n += len(claims)
	}
	return n
}

func TestBudgetServesInTurn(t *testing.T) {
	b := newBudget(100)
	if !b.tryTake("a", 60) || b.tryTake("b", 41) {
		t.Fatal("60 of 100 are not taken, or 101 are")
	}
	never := make(chan struct{})
	large, small := make(chan int), make(chan int)
	go func() { n, _ := b.take("b", 1000, never); large <- n }() // more than the budget has
	testkit.Await(t, "the large claim waits", func() bool { return b.queued() == 1 })
	go func() { n, _ := b.take("c", 1, never); small <- n }()
	testkit.Await(t, "the small claim waits", func() bool { return b.queued() == 2 })
	if b.tryTake("d", 1) {
		t.Error("a newer claim passed those that wait")
	}
	b.give("a", 60)
	if n := <-large; n != 100 {
		t.Errorf("the large claim got %d", n)
	}
	if b.queued() != 1 || b.taken() != 100 {
		t.Errorf("%d wait, %d are taken", b.queued(), b.taken())
	}
	b.give("b", 100)
	if n := <-small; n != 1 || b.taken() != 1 {
		t.Errorf("the small claim got %d, and %d are taken", n, b.taken())
	}
}

// TestBudgetStop checks that a claim that stops waiting does not hold up those behind it.
func TestBudgetStop(t *testing.T) {
	b := newBudget(100)
	b.tryTake("a", 50)
	stop, stopped, second := make(chan struct{}), make(chan bool), make(chan bool)
	go func() { _, ok := b.take("b", 60, stop); stopped <- ok }()
	testkit.Await(t, "the first waits", func() bool { return b.queued() == 1 })
	go func() { _, ok := b.take("c", 50, nil); second <- ok }()
	testkit.Await(t, "the second waits", func() bool { return b.queued() == 2 })
	close(stop)
	if <-stopped || !<-second || b.taken() != 100 {
		t.Errorf("%d are taken", b.taken())
	}
}

// TestBudgetShares checks that one source holds at most half, and only an eighth once others hold
// the rest. It also checks that other sources' claims overtake those of a source that has used up
// its share.
func TestBudgetShares(t *testing.T) {
	b := newBudget(1600)
	take := func(source string) (n int) {
		for b.tryTake(source, 1) {
			n++
		}
		return n
	}
	for i, want := range []int{800, 400, 200, 200, 0} {
		if n := take(fmt.Sprint(i)); n != want {
			t.Errorf("source %d gets %d, want %d", i, n, want)
		}
	}
	b.give("1", 400)
	if n := take("0"); n != 0 {
		t.Errorf("a source that holds half gets %d more", n)
	}
	greedy, modest := make(chan bool), make(chan bool)
	go func() { _, ok := b.take("0", 1, nil); greedy <- ok }()
	testkit.Await(t, "the claim beyond the share waits", func() bool { return b.queued() == 1 })
	go func() { _, ok := b.take("5", 400, nil); modest <- ok }()
	if !<-modest {
		t.Error("the claim of another source stopped")
	}
	b.give("0", 600)
	if !<-greedy || b.queued() != 0 {
		t.Error("the share of a source is not given back")
	}
}

func TestBudgetIsNeverExceeded(t *testing.T) {
	b := newBudget(1000)
	var running sync.WaitGroup
	for w := range 8 {
		source := fmt.Sprint(w / 2)
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			stopped := make(chan struct{})
			close(stopped)
			for range 2000 {
				stop := stopped // take may succeed or stop
				if rnd.IntN(2) == 0 {
					stop = nil
				}
				n, ok := b.take(source, 1+rnd.IntN(500), stop)
				if used := b.taken(); used > 1000 || ok && used < n {
					t.Errorf("%d of 1000 are taken", used)
				}
				b.give(source, n)
			}
		})
	}
	running.Wait()
	if b.taken() != 0 || b.queued() != 0 || len(b.held)+len(b.waiting)+len(b.turn) != 0 {
		t.Errorf("%d are taken, %d wait, of sources %v, %v, %v", b.taken(), b.queued(), b.held, b.waiting, b.turn)
	}
}
