package derive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// folding is the owner of a partition: it holds the states of all its vehicles in memory.
type folding struct {
	config *Config
	part   store.Partition
	mark   uint64        // Reply.Owner
	seed   uint64        // of the hash in states
	now    chan struct{} // asks once for a checkpoint
	newest uint64        // last sequence of telemetry at the take

	mu       sync.Mutex // guards the fields below
	states   *packedStates
	seq      uint64 // all telemetry up to here is folded
	live     bool   // answers are published
	restored bool
	broken   error // a group is folded in part, so no checkpoint may be stored
	// ahead holds, for each loaded state that is ahead of the checkpoint, up to which sequence samples
	// are folded into it.
	ahead   map[vehicle.ID]uint64
	aheadTo uint64 // greatest sequence in ahead
	// An earlier process may have folded all up to the sequence shownTo, and what was stored until two
	// checkpoint intervals after shownAt, the time at which the first group after shownTo was stored.
	shownTo uint64
	shownAt time.Time
	// day counts the days on which telemetry was stored; date is the last of them. So a clock that
	// jumps ahead by years is one day, and no vehicle was silent for years.
	day  uint16
	date int64 // Unix day

	saving sync.Mutex         // held while a checkpoint is stored; guards the fields below
	last   store.Checkpoint   // once loaded, changes only while mu is held, too
	window []store.Checkpoint // those from last.First to last
	tried  uint64             // number of the last checkpoint, even if it could not be stored
}

func newFolding(c *Config) *folding {
	return &folding{config: c, mark: rand.Uint64(), now: make(chan struct{}, 1), states: newPackedStates(0, 1, 0)}
}

// eachProcessor calls do on each of n processors, at most eight, with its number i.
func eachProcessor(do func(i, n int) error) error {
	errs := make([]error, min(runtime.GOMAXPROCS(0), 8))
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = do(i, len(errs)) })
	}
	all.Wait()
	return cmp.Or(errs...)
}

// load reads the newest checkpoint that is whole. The telemetry after it is folded again, so a
// damaged checkpoint loses nothing while that telemetry is kept.
func (f *folding) load(ctx context.Context, p int) error {
	all, newest := f.part.Stored()
	f.newest = newest
	if n := len(all); n > 0 {
		f.shownTo = all[n-1].Seq
	}
	for ; ; all = all[:len(all)-1] {
		f.ahead, f.aheadTo, f.last = make(map[vehicle.ID]uint64), 0, store.Checkpoint{}
		if len(all) > 0 {
			f.last = all[len(all)-1]
		}
		f.window = since(all, f.last.First)
		largest, total := 0, 0 // total is at most twice the size of all states
		for _, c := range f.window {
			largest, total = max(largest, c.Bytes), total+c.Bytes
		}
		f.states.end() // what was read of a damaged checkpoint
		f.seed = cmp.Or(f.last.Seed, rand.Uint64())
		f.states = newPackedStates(f.seed, f.config.bucketBytes, max(largest, total/2))
		f.seq, f.day, f.date = f.last.Seq, f.last.Day, f.last.Date
		if err := f.part.Seek(ctx, f.last); err != nil || len(all) == 0 {
			return err
		}
		err := store.ReadStates(ctx, f.config.Records, p, all, f.put)
		if err == nil {
			vehicles, _ := f.states.count()
			f.config.Loaded(vehicles)
		}
		if err == nil || !errors.Is(err, codec.ErrDamaged) || codec.IsNewer(err) {
			return err
		}
		f.config.Log.Error("a checkpoint is damaged: the one before it is read, and the telemetry since is folded again",
			"partition", p, "checkpoint", f.last.Number, "error", err)
	}
}

// end frees the states after a checkpoint in progress.
func (f *folding) end() {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live, f.broken = false, store.ErrNoOwner
	f.states.end()
}

// Each processor puts states into some of the buckets.
func (f *folding) put(piece store.Piece) error {
	defer f.states.split()
	return eachProcessor(func(i, n int) error {
		return store.DecodeEntries(piece.Entries, func(e store.Entry) error {
			if i == 0 && piece.Seq > f.seq {
				f.ahead[e.Vehicle], f.aheadTo = piece.Seq, max(f.aheadTo, piece.Seq)
			}
			if at, _ := f.states.find(e.Vehicle); at%n != i {
				return nil
			}
			forgotten, err := f.config.Covers(e.Vehicle)
			changed := byte(0)
			if forgotten && len(e.State) > 0 {
				e.State, changed = nil, 1
			} else if f.last.Seed == 0 {
				changed = 1
			}
			f.states.insert(e.Vehicle, e.State, e.Day, changed)
			return err
		})
	})
}

func since(all []store.Checkpoint, first uint64) []store.Checkpoint {
	return slices.DeleteFunc(slices.Clone(all), func(c store.Checkpoint) bool { return c.Number < first })
}

// While a clock is wrong, a state may get a time in the future, until which the rules would reject every
// sample as too old. apply resets it at the first sample whose time differs by at most vehicle.MaxAhead
// from that of its storing, so a replay resets the same states.
func (f *folding) apply(g store.Group) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g.Seq <= f.seq {
		return nil
	}
	defer func() {
		if err != nil {
			f.live, f.broken = false, err
		}
	}()
	f.seq = g.Seq
	if date := g.Stored.Unix() / secondsOfDay; date != f.date {
		if date > f.date {
			f.day++
		}
		f.date = date
	}
	if g.Seq > f.aheadTo {
		f.ahead = nil
	}
	again := !f.live && f.again(g)
	defer f.states.split()
	if f.live || len(g.Samples) < 16 {
		return f.fold(g, again, 0, 1)
	}
	return eachProcessor(func(i, n int) error { return f.fold(g, again, i, n) })
}

// fold folds the samples of a group whose vehicles are in every n-th bucket from the i-th.
func (f *folding) fold(g store.Group, again bool, i, n int) (err error) {
	earliest, latest := signal.At(g.Stored.Add(-vehicle.MaxAhead)), signal.At(g.Stored.Add(vehicle.MaxAhead))
	var s vehicle.State // of the vehicle of the present sample
	var packed []byte
	changed, skips := false, false
	others := func(id vehicle.ID) bool { at, _ := f.states.find(id); return at%n != i }
	for k := range g.Samples {
		if k == 0 || g.Samples[k].Vehicle != g.Samples[k-1].Vehicle {
			id := g.Samples[k].Vehicle
			if skips = n > 1 && others(id); skips {
				continue
			}
			if skips, err = f.config.Covers(id); err != nil {
				return err
			}
			if skips = skips || g.Seq <= f.ahead[id]; skips {
				continue
			}
			if s, err = f.states.get(id); err != nil {
				return fmt.Errorf("cannot read a state: %w", err)
			}
		}
		if skips {
			continue
		}
		x := &g.Samples[k]
		x.Stored = signal.At(g.Stored)
		if s.Time > latest && earliest <= x.Time && x.Time <= latest {
			s = vehicle.State{}
		}
		changed = f.config.Fold(&s, x, again) || changed
		if changed && (k+1 == len(g.Samples) || g.Samples[k+1].Vehicle != x.Vehicle) {
			packed = codec.AppendState(packed[:0], &s)
			f.states.insert(x.Vehicle, packed, f.day, 1)
			f.publish(x.Vehicle, &s)
			changed = false
		}
	}
	return nil
}

// again reports whether a process may have folded a group before. It then has shown what the group
// says of roads, too. A backlog that no node has folded is new. The caller holds mu.
func (f *folding) again(g store.Group) bool {
	if g.Seq > f.shownTo && f.shownAt.IsZero() {
		f.shownAt = g.Stored
	}
	return f.shownAt.IsZero() || g.Stored.Sub(f.shownAt) < 2*f.config.Checkpoint
}

// The caller of publish holds mu.
func (f *folding) publish(id vehicle.ID, s *vehicle.State) {
	if f.live {
		a := store.AnswerOf(s)
		f.part.Publish(id, &a)
	}
}

// goLive publishes all answers once all telemetry stored before the take is folded: no answer is
// older than one that another process may have shown. A checkpoint follows, so that the telemetry
// that several crashes fold again does not add up.
func (f *folding) goLive(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live || f.seq < f.newest {
		return
	}
	f.live = true
	f.part.Live(ctx, f.states.answers)
	f.now <- struct{}{} // now has room for it
}

// answers calls put with the answer of every vehicle, from several goroutines.
func (p *packedStates) answers(put func(vehicle.ID, *store.Answer)) {
	_ = eachProcessor(func(i, n int) error {
		var a store.Answer
		for ; i < len(p.buckets); i += n {
			for r := range p.buckets[i].records {
				a = answerIn(r)
				put(vehicle.ID(vidOf(r)), &a)
			}
		}
		return nil
	})
}

func answerIn(r []byte) (a store.Answer) {
	if packed := stateOf(r); len(packed) > 0 {
		if s, err := codec.DecodeState(packed); err == nil {
			a = store.AnswerOf(&s)
		}
	}
	return a
}

const secondsOfDay = int64(24 * time.Hour / time.Second)

// gone reports whether a record may be dropped: the state of a vehicle that was silent for
// SilentDays, or with erase, the marker of one whose erasure is due.
func (f *folding) gone(r []byte, erase bool) bool {
	if len(stateOf(r)) == 0 {
		return erase && f.config.Gone(vehicle.ID(vidOf(r)))
	}
	return int(f.day)-int(dayOf(r)) > f.config.SilentDays
}

// checkpoint stores what has changed since the last one, but nothing while some states are ahead of
// seq. With full, it stores all states, and with erase also removes every older checkpoint. It does not
// pause between pieces once hurry has ended.
// If it fails, its pieces may be stored later still, and the states in them count as unchanged; so
// the next has another number, and all states.
func (f *folding) checkpoint(ctx, hurry context.Context, full, erase bool) (store.Checkpoint, error) {
	f.saving.Lock()
	defer f.saving.Unlock()
	is := f.last
	full = full || is.Seed != f.seed || f.tried > is.Number
	f.mu.Lock()
	if f.broken != nil {
		f.mu.Unlock()
		return is, f.broken
	}
	if f.seq < f.aheadTo || !full && !f.pending() {
		f.mu.Unlock()
		_, err := f.part.Save(ctx, store.Checkpoint{}, nil, false)
		return is, err
	}
	f.tried = max(f.tried, is.Number) + 1
	next := store.Checkpoint{
		Number: f.tried, First: f.tried, Owner: f.mark, Seq: f.seq, Day: f.day, Date: f.date, Seed: f.seed,
		Restored: is.Restored || f.restored,
	}
	live := int(f.states.bytes.Load())
	vehicles, changed := f.states.count()
	bytes := live*changed/max(1, vehicles) + live/store.CheckpointCycle // of the new checkpoint
	f.mu.Unlock()
	first := max(is.First, next.Number-min(next.Number, store.CheckpointCycle)+1)
	window := since(f.window, first)
	for _, c := range window {
		bytes += c.Bytes
	}
	// The new one has all states if a start would otherwise read twice their bytes.
	if full = full || bytes >= 2*live; full {
		bytes, window = live, nil
	} else {
		next.First = first
	}
	next, err := f.part.Save(ctx, next, f.pieces(hurry, next, bytes, erase), erase)
	if err != nil {
		return is, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.window = next, append(window, next)
	return next, nil
}

// pieces is an iterator over the pieces of a checkpoint, each with the states as they are when it is
// asked for. They will have the given number of bytes, and are spread over half of the interval.
func (f *folding) pieces(hurry context.Context, c store.Checkpoint, bytes int, erase bool) iter.Seq[store.Piece] {
	return func(yield func(store.Piece) bool) {
		full := c.First == c.Number
		gone := func(r []byte) bool { return f.gone(r, erase) }
		for next, done := 0, false; !done; {
			f.mu.Lock()
			piece := store.Piece{Seq: f.seq}
			piece.Entries, next, done = f.states.piece(next, f.config.pieceBytes, c.Number, full, gone)
			f.mu.Unlock()
			if len(piece.Entries) > 0 && !yield(piece) {
				return
			}
			if !done {
				_ = periodic.Pause(hurry, f.config.Checkpoint/2*time.Duration(f.config.pieceBytes)/time.Duration(max(bytes, f.config.pieceBytes)))
			}
		}
	}
}

// pending reports whether there is something to store. The caller holds mu.
func (f *folding) pending() bool {
	_, changed := f.states.count()
	return f.seq != f.last.Seq || changed != 0
}

var atOnce = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// runCheckpoints stores a checkpoint at every interval at which something has changed, until one cannot
// be stored because another process owns the partition, or leaving ends. Then it stores one more, in
// its turn.
func (f *folding) runCheckpoints(leaving, storing context.Context, turns chan struct{}) error {
	renewed := time.Now()
	for last := false; !last; {
		hurry := leaving
		select {
		case <-leaving.Done():
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-storing.Done():
			}
			if last = true; storing.Err() != nil {
				return nil // an interrupted checkpoint would make the next one a whole one
			}
		case <-f.now:
			hurry = atOnce
		case <-time.After(f.config.Checkpoint):
		}
		f.mu.Lock()
		idle := !f.live || !f.pending()
		f.mu.Unlock()
		if idle && time.Since(renewed) < renewAfter {
			continue
		}
		if _, err := f.checkpoint(storing, hurry, false, false); err != nil {
			return err
		}
		renewed = time.Now()
	}
	return nil
}

// replyBytes is the size in bytes from which a part of all answers or states is full.
const replyBytes = 256 << 10

func (f *folding) reply(ctx context.Context, q *store.Question) (store.Reply, error) {
	r := store.Reply{Owner: f.mark}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.live {
		return r, store.ErrNoOwner
	}
	switch q.Kind {
	case store.AskTombstones:
	case store.AskCheckpoint, store.AskErase:
		f.mu.Unlock()
		defer f.mu.Lock() // before the deferred Unlock
		var err error
		r.Checkpoint, err = f.checkpoint(ctx, atOnce, true, q.Kind == store.AskErase)
		return r, err
	case store.AskState:
		s, err := f.states.get(q.Vehicle)
		if r.Had = s.Time != 0; r.Had && err == nil {
			r.State = codec.AppendState(nil, &s)
		}
		return r, err
	case store.AskDrop:
		s, err := f.states.get(q.Vehicle)
		r.Had = err != nil || s.Time != 0
		f.drop(q.Vehicle)
	case store.AskDropAll:
		var found []vehicle.ID
		for record := range f.states.all {
			if id := vehicle.ID(vidOf(record)); len(stateOf(record)) > 0 {
				forgotten, err := f.config.Covers(id)
				if err != nil {
					return r, err
				}
				if forgotten {
					found = append(found, id)
				}
			}
		}
		for _, id := range found {
			f.drop(id)
		}
	case store.AskRestore:
		return r, store.DecodeEntries(q.Entries, func(e store.Entry) error { return f.restore(e, &r) })
	case store.AskAnswers, store.AskStates:
		for r.Next = q.From; len(r.Answers)+len(r.Entries) < replyBytes; r.Next++ {
			if r.Next >= len(f.states.buckets) {
				r.Next = 0
				break
			}
			for record := range f.states.buckets[r.Next].records {
				switch id := vehicle.ID(vidOf(record)); {
				case q.Kind == store.AskAnswers:
					a := answerIn(record)
					r.Answers = store.AppendAnswer(r.Answers, id, &a)
				case len(stateOf(record)) > 0:
					r.Entries = store.AppendEntry(r.Entries, store.Entry{Vehicle: id, Day: dayOf(record), State: stateOf(record)})
				}
			}
		}
	default: // a question of a newer version
		return r, codec.ErrNewer
	}
	return r, nil
}

// drop puts a marker in place of the state of a vehicle. The caller holds mu.
func (f *folding) drop(id vehicle.ID) {
	f.states.set(id, nil, f.day, 1)
	f.part.Publish(id, new(store.Answer))
}

// restore puts a restored state in place of an older one, unless the vehicle was forgotten meanwhile.
// The caller holds mu.
func (f *folding) restore(e store.Entry, r *store.Reply) error {
	if forgotten, err := f.config.Covers(e.Vehicle); err != nil || forgotten {
		return err
	}
	s, err := codec.DecodeState(e.State)
	if err != nil {
		return err
	}
	is, err := f.states.get(e.Vehicle)
	if err != nil {
		return err
	}
	if is.Time >= s.Time && is.Time != 0 {
		r.Kept++
		return nil
	}
	f.states.set(e.Vehicle, e.State, f.day, 1)
	f.publish(e.Vehicle, &s)
	f.restored = true
	r.Restored++
	return nil
}
