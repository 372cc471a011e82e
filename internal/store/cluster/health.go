package cluster

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"carstate/internal/seldom"
	"carstate/internal/store/codec"
	"carstate/internal/ticks"
)

// warned is what lasts as long as an outage does, for all partitions together.
type warned struct{ fold, commit, backlog, limits seldom.Warning }

// watchedStreams are those that are written to all the time.
var watchedStreams = append([]string{codec.Telemetry}, fedStreams...)

// Alive says why only a restart helps, nil while there is hope.
func (e *Engine) Alive() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Writable says why nothing can be stored at present, nil if it can. It finds
// out by itself when that changes; nobody has to try.
func (e *Engine) Writable() error {
	if err := e.Alive(); err != nil {
		return err
	}
	for _, name := range watchedStreams {
		if e.writes[name].Load() {
			return fmt.Errorf("the engine stores nothing in %s", name)
		}
	}
	return nil
}

// tryTelemetry finds out when TELEMETRY takes writes again after a commit was
// given up. Nobody else would: while it is said to take none, nobody is let
// through who could store something. What it stores is a commit without samples, the
// only proof that there is, and folded like others. The other streams have their
// heartbeats.
func (e *Engine) tryTelemetry(ctx context.Context) {
	failing, subject := e.writes[codec.Telemetry], codec.TelemetrySubject(0)
	id := "" // the same for all tries, so that one of them is stored
	for range ticks.Every(ctx, e.config.Timeouts.Beat) {
		if !failing.Load() || e.committing.Load() > 0 { // a commit is tried until it finds out itself
			id = ""
			continue
		}
		if id == "" {
			id = nuid.Next()
		}
		try, cancel := context.WithTimeout(ctx, e.config.Timeouts.Try)
		_, err := e.js.Publish(try, subject, codec.Seal(subject, []byte{0}), jetstream.WithMsgID(id), jetstream.WithExpectStream(codec.Telemetry))
		cancel()
		if err == nil || full(err) { // a full stream says so itself to whoever appends
			failing.Store(false)
		}
	}
}
