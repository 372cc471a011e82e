package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
)

// later is a record as a later version would store it: sound, and not ours to
// understand.
func later(subject string) []byte {
	record := append([]byte{codec.SchemaVersion + 1}, "whatever it means then"...)
	return binary.LittleEndian.AppendUint32(record, codec.Checksum(subject, record))
}

// On a cluster other nodes may be newer; the node that does not understand them
// says so and ends.
func TestNewerRecordOnFeed(t *testing.T) {
	t.Parallel()
	e, err := Open(t.Context(), Config{Partitions: 1, URLs: startNATS(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.nc.PublishMsg(&nats.Msg{Subject: "source.X", Data: later("source.X")}); err != nil {
		t.Fatal(err)
	}
	k := store.NewKeeper(e, store.Config{}, new(access.Tables))
	if err := k.RunSources(t.Context(), func() {}); !errors.Is(err, codec.ErrNewer) {
		t.Errorf("the feed: %v", err)
	}
	if err := <-e.Failed(); !errors.Is(err, codec.ErrNewer) {
		t.Errorf("the engine: %v", err)
	}
}

// A node that was away for longer than markers last cannot know what was
// forgotten meanwhile.
func TestAwayForTooLong(t *testing.T) {
	t.Parallel()
	e, err := Open(t.Context(), Config{Partitions: 1, URLs: startNATS(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	caughtUp := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	f := e.newFeed(codec.States)
	f.caughtUp = func() { close(caughtUp) }
	f.apply = func(store.Record) error { return nil }
	ended := make(chan error)
	go func() { ended <- f.run(ctx) }()
	<-caughtUp
	testkit.Await(t, "a heartbeat came", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.last != 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	f.heard = f.heard.Add(-10 * time.Minute) // as if it had been silent since
	if err := f.run(t.Context()); !errors.Is(err, store.ErrReplaced) || !strings.Contains(err.Error(), "left no trace") {
		t.Errorf("it went on: %v", err)
	}
	if err := <-e.Failed(); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("the engine: %v", err)
	}
}
