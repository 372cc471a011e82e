package embedded

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Answers is a node's copy of what the stored states say.
type Answers interface {
	// Put replaces what is known of a vehicle.
	Put(vehicle.ID, vehicle.DrivingVerdict, vehicle.ThrottleVerdict)
	// Delete forgets one.
	Delete(vehicle.ID)
	// Len is the number of vehicles known.
	Len() int
	// Clear forgets all of them.
	Clear()
}

// Preload fills Answers from the blocks of STATES while they are checked, before
// the server starts. The feed then goes on behind them: to have the server
// deliver every state once more takes three times as long.
//
// Blocks also hold records that were overwritten, which come before those that
// replaced them, and may hold records that were removed. Whether they do, the
// server says when it runs: every subject that it knows has its newest record in a
// block, so if there are as many as were found, they are the same. If not, what was
// found is thrown away, and the feed starts from the beginning.
type Preload struct {
	answers Answers
	Last    uint64              // sequence of the newest record read
	others  map[string]struct{} // subjects that are not of a vehicle
	// forgotten are the vehicles whose newest record says no more than that.
	forgotten map[vehicle.ID]struct{}
	unsure    bool      // something was read that only the feed can judge
	Created   time.Time // of the stream
}

// NewPreload begins a preload of a.
func NewPreload(a Answers) *Preload {
	return &Preload{answers: a, others: make(map[string]struct{}), forgotten: make(map[vehicle.ID]struct{})}
}

// found is what was read of one block.
type found struct {
	first, last uint64 // sequences; 0: no record
	answers     []foundAnswer
	others      []string
	unsure      bool
}

type foundAnswer struct {
	id        vehicle.ID
	driving   vehicle.DrivingVerdict
	throttle  vehicle.ThrottleVerdict
	forgotten bool
}

// add takes in a block's next record.
func (f *found) add(r storedRecord) {
	if r.erased {
		return
	}
	if f.first == 0 {
		f.first = r.seq
	}
	f.unsure = f.unsure || r.seq <= f.last
	f.last = r.seq
	subject := string(r.subject)
	id, ok := codec.VehicleOfState(subject)
	if !ok {
		f.others = append(f.others, subject)
		return
	}
	var s vehicle.State
	body, err := codec.Unseal(subject, r.payload)
	if err == nil && codec.IsMarker(body) {
		f.answers = append(f.answers, foundAnswer{id: id, forgotten: true})
		return
	}
	if err == nil {
		s, err = codec.DecodeState(body)
	}
	if err != nil {
		f.unsure = true
		return
	}
	f.answers = append(f.answers, foundAnswer{id: id, driving: s.Driving(), throttle: s.Throttle()})
}

// take takes in what was read of a block, one block after the other.
func (p *Preload) take(f found) {
	if p == nil || f.first == 0 {
		return
	}
	p.unsure = p.unsure || f.unsure || f.first <= p.Last
	p.Last = f.last
	for _, a := range f.answers {
		if a.forgotten {
			p.answers.Delete(a.id)
			p.forgotten[a.id] = struct{}{}
			continue
		}
		p.answers.Put(a.id, a.driving, a.throttle)
		delete(p.forgotten, a.id)
	}
	for _, s := range f.others {
		p.others[s] = struct{}{}
	}
}

// Subjects is how many subjects of the stream were read.
func (p *Preload) Subjects() uint64 {
	return uint64(p.answers.Len() + len(p.others) + len(p.forgotten))
}

// Matches reports whether what was read is what the stream holds, of which the server
// says how many subjects it has and where it ends.
func (p *Preload) Matches(subjects, last uint64) bool {
	return !p.unsure && p.Last != 0 && subjects == p.Subjects() && last >= p.Last
}

// inOrder calls get for 0 to n-1, several at a time, and use for what they
// return, one after the other and in order. It ends at the first error.
func inOrder[T any](ctx context.Context, n int, get func(int) (T, error), use func(T)) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	type result struct {
		value T
		err   error
	}
	results := make([]chan result, n)
	for i := range results {
		results[i] = make(chan result, 1)
	}
	workers := min(n, runtime.GOMAXPROCS(0))
	ahead := make(chan struct{}, workers+1) // bounds what was got and waits to be used
	var next atomic.Int64
	for range workers {
		running.Go(func() {
			for {
				select {
				case ahead <- struct{}{}:
				case <-ctx.Done():
					return
				}
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				v, err := get(i)
				results[i] <- result{v, err}
			}
		})
	}
	for i := range results {
		select {
		case r := <-results[i]:
			if r.err != nil {
				return r.err
			}
			use(r.value)
			<-ahead
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
