package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store"
	"carstate/internal/store/cluster/embedded"
	"carstate/internal/store/codec"
)

// comparePreloaded asks the server whether what was read is what it holds. Nobody
// has stored anything since it started.
func (e *Engine) comparePreloaded(ctx context.Context) error {
	p := e.preloaded
	if p == nil {
		return nil
	}
	s, err := e.js.Stream(ctx, codec.States)
	if err != nil {
		return fmt.Errorf("the embedded engine cannot be asked about %s: %w", codec.States, err)
	}
	info := s.CachedInfo()
	p.Created = info.Created
	if is := info.State.NumSubjects; !p.Matches(is, info.State.LastSeq) {
		e.log.Debug("the states are read once more, from the engine", "subjects", is, "found", p.Subjects())
		e.config.Answers.Clear()
		e.preloaded = nil
	}
	return nil
}

// finishInterrupted stores what the streams lack of the batches that were under way
// at a crash.
func (e *Engine) finishInterrupted(ctx context.Context, all []*embedded.Interrupted) error {
	if len(all) == 0 {
		return nil
	}
	stored, left := 0, false
	for _, b := range all {
		n, err := e.finish(ctx, b)
		if full(err) {
			e.log.Error("a write that a crash interrupted cannot be finished, because the stream is full: the next start tries again", "stream", b.Stream)
			left, err = true, nil
		}
		if err != nil {
			return fmt.Errorf("a write that a crash interrupted cannot be finished: %w", err)
		}
		stored += n
	}
	if stored > 0 {
		e.log.Info("a write that a crash interrupted was finished", "records", stored)
	}
	if left {
		return nil
	}
	return embedded.DropInterrupted(e.config.DataDir)
}

// finish stores the records of a batch that are missing, the last one last.
func (e *Engine) finish(ctx context.Context, b *embedded.Interrupted) (stored int, err error) {
	present := make([]*nats.RawStreamMsg, len(b.Records))
	for i, r := range b.Records {
		if _, err := codec.Unseal(r.Subject, r.Payload); err != nil {
			return 0, err
		}
		if present[i], err = e.lastMessage(ctx, b.Stream, r.Subject); err != nil {
			return 0, err
		}
	}
	if !b.UnderWay(present) {
		return 0, nil
	}
	for _, i := range b.Missing(present) {
		r := b.Records[i]
		var seq uint64
		if m := present[i]; m != nil {
			seq = m.Sequence
		}
		if _, err := e.Store(ctx, b.Stream, []store.Write{{Subject: r.Subject, Record: r.Payload, Expect: seq, Expected: true}}); err != nil {
			return stored, err
		}
		stored++
	}
	return stored, nil
}

// lastMessage returns the last message of a subject, nil if there is none.
func (e *Engine) lastMessage(ctx context.Context, stream, subject string) (*nats.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := e.legacy.GetLastMsg(stream, subject, nats.Context(ctx), nats.DirectGet())
	if errors.Is(err, nats.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

// noteStored takes in an answer of the engine. What operators do is witnessed
// without delay.
func (e *Engine) noteStored(stream string, seq uint64) {
	e.newest.Note(stream, seq)
	if h := e.beats[codec.States]; h != nil && stream != codec.States && stream != codec.Roads && e.witnesses() {
		h.soon()
	}
}

// witnesses reports whether the heartbeats are to tell what was acknowledged: all of
// it is on this node's disk.
func (e *Engine) witnesses() bool { return e.config.embedded() && e.config.SyncInterval == 0 }

// tornWrites says which writes the way the engine last ended may have torn.
func (e *Engine) tornWrites() embedded.TornWrites {
	switch {
	case e.dir.Closed != nil:
		return embedded.TornNowhere
	case e.config.SyncInterval != 0:
		return embedded.TornAnywhere
	}
	return embedded.TornNewest
}

// checkWhole refuses a store that the embedded server opened with parts left
// out. The finding is written down, because the server would open what is left
// without a word the next time.
func (e *Engine) checkWhole(ctx context.Context) error {
	for _, name := range codec.WholeStreams {
		s, err := e.js.Stream(ctx, name)
		damage := ""
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			damage = "stream " + name + " is missing"
		} else if err != nil {
			return fmt.Errorf("the embedded engine cannot be asked about %s: %w", name, err)
		} else if was, ok := e.dir.Closed[name]; ok {
			damage = missing(name, was, s.CachedInfo().State)
		} else if last, is := e.witnessed[name].Load(), s.CachedInfo().State.LastSeq; is < last && e.tornWrites() != embedded.TornAnywhere {
			damage = fmt.Sprintf("stream %s held records up to %d and now ends at %d", name, last, is)
		}
		if damage != "" {
			e.dir.Damaged = damage
			if err := e.dir.Save(); err != nil {
				e.log.Error("the damage cannot be noted in the data directory", "error", err)
			}
			return embedded.DamagedDir(e.dir.Path, damage)
		}
	}
	return nil
}

// missing says what a stream lacks of what it held. It may hold more: a write
// that was under way when the note was taken.
func missing(name string, was embedded.StreamEnd, is jetstream.StreamState) string {
	if is.LastSeq < was.Last || is.LastSeq == was.Last && is.Msgs < was.Records {
		return fmt.Sprintf("stream %s held %d records up to %d and now holds %d up to %d",
			name, was.Records, was.Last, is.Msgs, is.LastSeq)
	}
	return ""
}

// streamEnds notes what each stream holds, nil if the server cannot tell.
func (e *Engine) streamEnds() map[string]embedded.StreamEnd {
	all, err := e.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil
	}
	ends := make(map[string]embedded.StreamEnd)
	for _, account := range all.AccountDetails {
		for _, s := range account.Streams {
			ends[s.Name] = embedded.StreamEnd{Last: s.State.LastSeq, Records: s.State.Msgs}
		}
	}
	return ends
}
