package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// tornWrites says which writes the way the engine last ended may have torn.
func (e *Engine) tornWrites() tornWrites {
	switch {
	case e.dir.Closed != nil:
		return tornNowhere
	case e.config.SyncInterval != 0:
		return tornAnywhere
	}
	return tornNewest
}

// checkWhole refuses a store that the embedded server opened with parts left
// out. The finding is written down, because the server would open what is left
// without a word the next time.
func (e *Engine) checkWhole(ctx context.Context) error {
	for _, name := range wholeStreams {
		s, err := e.js.Stream(ctx, name)
		damage := ""
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			damage = "stream " + name + " is missing"
		} else if err != nil {
			return fmt.Errorf("the embedded engine cannot be asked about %s: %w", name, err)
		} else if was, ok := e.dir.Closed[name]; ok {
			damage = missing(name, was, s.CachedInfo().State)
		} else if last, is := e.witnessed[name].Load(), s.CachedInfo().State.LastSeq; is < last && e.tornWrites() != tornAnywhere {
			damage = fmt.Sprintf("stream %s held records up to %d and now ends at %d", name, last, is)
		}
		if damage != "" {
			e.dir.Damaged = damage
			if err := e.dir.save(); err != nil {
				e.log.Error("the damage cannot be noted in the data directory", "error", err)
			}
			return damagedDir(e.dir.path, damage)
		}
	}
	return nil
}

// missing says what a stream lacks of what it held. It may hold more: a write
// that was under way when the note was taken.
func missing(name string, was streamEnd, is jetstream.StreamState) string {
	if is.LastSeq < was.Last || is.LastSeq == was.Last && is.Msgs < was.Records {
		return fmt.Sprintf("stream %s held %d records up to %d and now holds %d up to %d",
			name, was.Records, was.Last, is.Msgs, is.LastSeq)
	}
	return ""
}

// streamEnds notes what each stream holds, nil if the server cannot tell.
func (e *Engine) streamEnds() map[string]streamEnd {
	all, err := e.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil
	}
	ends := make(map[string]streamEnd)
	for _, account := range all.AccountDetails {
		for _, s := range account.Streams {
			ends[s.Name] = streamEnd{Last: s.State.LastSeq, Records: s.State.Msgs}
		}
	}
	return ends
}
