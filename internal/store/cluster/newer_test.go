package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
)

func later(subject, body string) []byte {
	record := append([]byte{codec.SchemaVersion + 1}, body...)
	return binary.LittleEndian.AppendUint32(record, codec.Checksum(subject, record))
}

type behind struct {
	*Engine
	log *testkit.Buffer
}

func openBehind(t *testing.T, c Config) behind {
	t.Helper()
	o := behind{log: new(testkit.Buffer)}
	c.Log = slog.New(slog.NewTextHandler(o.log, nil))
	c.Newer = store.NewNewer(c.Log)
	o.Engine = open(t, c)
	return o
}

func (o behind) later(t *testing.T, subject, body string) {
	t.Helper()
	_, err := o.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: later(subject, body)})
	testkit.NoError(t, err)
}

func (o behind) met(t *testing.T, stream string) {
	t.Helper()
	testkit.Await(t, "it is said", func() bool { return o.log.Count("stream="+stream) > 0 })
	if n := o.log.Count("stream=" + stream); n != 1 ||
		o.log.Count(fmt.Sprint("schema version ", codec.SchemaVersion+1)) == 0 {
		t.Errorf("lines about %s: got %d, want 1, of schema version %d:\n%s", stream, n, codec.SchemaVersion+1, o.log)
	}
	if err := o.Alive(); err != nil || !slices.Contains(o.config.Newer.Streams(), stream) {
		t.Errorf("after a newer record: got Alive %v, streams %q; want nil, %s", err, o.config.Newer.Streams(), stream)
	}
}

func (o behind) last(t *testing.T, name, subject string) []byte {
	t.Helper()
	s, _ := stream(t, o.js, name)
	m, err := s.GetLastMsgForSubject(t.Context(), subject)
	testkit.NoError(t, err)
	return m.Data
}

func (o behind) storeConfig() store.Config {
	return store.Config{Log: o.config.Log, Newer: o.config.Newer}
}

func (o behind) keep(t *testing.T) (*store.RecordStore, *access.Tables) {
	t.Helper()
	return storetest.RunKeeper(t, o.Engine, o.storeConfig())
}

// The credential may have been revoked, so it is not valid; an unknown secret may be its own.
func TestNewerCredential(t *testing.T) {
	t.Parallel()
	o := openBehind(t, Config{})
	k, tables := o.keep(t)
	live(t, o.Engine, 0)
	token, secret := storetest.Issue(t, k, access.AllVehicles())
	_, kept := storetest.Issue(t, k, access.AllVehicles())
	subject := "token." + token.Name
	o.later(t, subject, "revoked")
	o.met(t, codec.Tokens)
	verify := func(secret string) error {
		_, err := tables.Tokens.Verify([]byte(secret), time.Now())
		return err
	}
	testkit.Await(t, "it does not count", func() bool { return errors.Is(verify(secret), access.ErrUnread) })
	unknown, _ := access.NewSecret(access.TokenKind)
	if err := verify(unknown); !errors.Is(err, access.ErrUnread) {
		t.Errorf("an unknown secret, which may be its new one: got %v, want %v", err, access.ErrUnread)
	}
	if err := verify(kept); err != nil {
		t.Errorf("the other token: got %v, want no error", err)
	}
	if _, err := k.Update(t.Context(), access.TokenKind, token.Name,
		func(*access.Credential) error { return nil }); !codec.IsNewer(err) {
		t.Errorf("a change of its record: got %v, want an error of a newer version", err)
	}
	if string(o.last(t, codec.Tokens, subject)) != string(later(subject, "revoked")) {
		t.Errorf("the record: got %q, want it unchanged", o.last(t, codec.Tokens, subject))
	}
	if _, err := k.Forget(t.Context(), "car"); !codec.IsNewer(err) {
		t.Errorf("a forget, which cannot see all grants: got %v, want an error of a newer version", err)
	}
}

// A node that starts would report the vehicles as unknown.
func TestNewerAnswers(t *testing.T) {
	t.Parallel()
	o := openBehind(t, Config{Timeouts: impatient})
	part, _ := live(t, o.Engine, 0, answer("car", 1))
	shown := followAnswers(t, o.Engine)
	testkit.NoError(t, o.nc.Publish(answersSubject(0), later(answersSubject(0), "an answer")))
	o.met(t, codec.States)
	if err := o.config.Newer.Answers(); err != nil || shown.time("car") != 1 {
		t.Errorf("a node that knew the answers before: %v, car at %d, want 1", err, shown.time("car"))
	}
	part.Close()
	owner, err := o.nc.Subscribe(ownerSubject(0), func(m *nats.Msg) { _ = m.Respond(later(m.Subject, "a reply")) })
	testkit.NoError(t, err)
	defer owner.Unsubscribe()
	again := openBehind(t, Config{URLs: o.config.URLs})
	followAnswers(t, again.Engine)
	again.met(t, codec.States)
	if again.config.Newer.Answers() == nil || again.config.Newer.Telemetry() != nil {
		t.Errorf("a node that started: got answers %v, telemetry %v; want an error, nil", again.config.Newer.Answers(),
			again.config.Newer.Telemetry())
	}
	if err := again.Alive(); err != nil {
		t.Errorf("Alive: got %v, want no error", err)
	}
}

// The vehicle counts as forgotten, and its samples are not folded. Without the keys, nothing is
// served.
func TestNewerTombstone(t *testing.T) {
	t.Parallel()
	o := openBehind(t, Config{})
	k, _ := o.keep(t)
	o.later(t, codec.TombstoneSubject(o.Forgotten().Hash("car")), "perhaps allowed again")
	o.met(t, codec.Sources)
	testkit.Await(t, "it is forgotten", func() bool { return o.Forgotten().Has("car") })
	if _, err := k.Covers("car"); !codec.IsNewer(err) {
		t.Errorf("its sample: got %v, want an error of a newer version", err)
	}
	if o.config.Newer.Answers() != nil || o.config.Newer.Telemetry() != nil {
		t.Errorf("other vehicles: got answers %v, telemetry %v; want nil, nil", o.config.Newer.Answers(),
			o.config.Newer.Telemetry())
	}
	o.later(t, codec.VIDKeysSubject, "keys")
	testkit.Await(t, "nothing is served", func() bool {
		return o.config.Newer.Answers() != nil && o.config.Newer.Telemetry() != nil
	})
	if err := o.Alive(); err != nil {
		t.Errorf("Alive: got %v, want no error", err)
	}
}

func TestNewerPartition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream, subject string
		fold            func(context.Context, *Partition) error
	}{
		"telemetry": {codec.Telemetry, codec.TelemetrySubject(0), func(ctx context.Context, p *Partition) error {
			_, err := p.Next(ctx)
			return err
		}},
		"the cursor": {codec.States, codec.CursorSubject(0), func(ctx context.Context, p *Partition) error {
			return saveAs(ctx, p, store.Checkpoint{Number: 1, First: 1}, "states")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openBehind(t, Config{})
			p := take(t, o.Engine, 0)
			o.later(t, c.subject, "of the future")
			if err := c.fold(testkit.Context(t), p); !codec.IsNewer(err) {
				t.Errorf("the fold: got %v, want an error of a newer version", err)
			}
			o.met(t, c.stream)
			if name != "the cursor" {
				return
			}
			if err := o.Release(t.Context(), 0, "test"); !codec.IsNewer(err) {
				t.Errorf("Release when nobody knows whose it is: got %v, want an error of a newer version", err)
			}
			if _, err := o.Take(t.Context(), 0, "test", storetest.Empty, store.Anyone); !codec.IsNewer(err) {
				t.Errorf("Take: got %v, want an error of a newer version", err)
			}
			if err := openBehind(t, Config{URLs: o.config.URLs}).Release(t.Context(), 0, "other"); err != nil {
				t.Errorf("Release by a node that never had it: got %v, want no error", err)
			}
			testkit.Await(t, "nothing counts as folded", func() bool {
				testkit.NoError(t, o.measureBacklog(t.Context()))
				return o.needed[0].Load() == 0
			})
			if string(o.last(t, codec.States, c.subject)) != string(later(c.subject, "of the future")) {
				t.Errorf("the cursor: got %q, want it unchanged", o.last(t, codec.States, c.subject))
			}
		})
	}
}

// The first lease may be that of a node that no longer runs.
func TestNewerLease(t *testing.T) {
	t.Parallel()
	o := openBehind(t, Config{})
	type lease struct {
		name string
		beat uint64
	}
	leases := make(chan lease, 10)
	background(t, func(ctx context.Context) error {
		return o.Leases().Follow(ctx, func(name string, beat uint64, leaving bool) { leases <- lease{name, beat} })
	})
	o.later(t, codec.MemberSubject("next"), "beat")
	first := <-leases
	if o.NewerFolds() {
		t.Error("NewerFolds after the first lease, perhaps of a node that is gone: got true, want false")
	}
	o.later(t, codec.MemberSubject("next"), "beat")
	if second := <-leases; first.name != "next" || second.beat <= first.beat || !o.NewerFolds() {
		t.Errorf("leases: got %+v, then %+v, want a renewal of next", first, second)
	}
	if o.log.Count("newer version") > 0 {
		t.Errorf("the log of a lease: got a newer version in it, want nothing:\n%s", o.log)
	}
}

func TestNewerEvent(t *testing.T) {
	t.Parallel()
	o := openBehind(t, Config{})
	k, _ := o.keep(t)
	o.later(t, codec.AuditSubject, "an event")
	testkit.NoError(t, k.Audit(t.Context(), access.Event{Action: "token.issue"}))
	events, _, err := k.AuditPage(t.Context(), 0, 10)
	if err != nil || len(events) != 2 || events[0].Action != "token.issue" ||
		!strings.Contains(events[1].Detail, "newer version") || time.Since(events[1].Time) > time.Hour {
		t.Errorf("the audit: got %+v, %v, want the event of this version, then the unreadable one", events, err)
	}
	o.met(t, codec.Audit)
}

func TestNewerTile(t *testing.T) {
	t.Parallel()
	o := openBehind(t, Config{})
	take(t, o.Engine, 0)
	tiles := storetest.Tiles(t)
	subject := ""
	for tile := range tiles {
		subject = codec.RoadPrefix + tile
	}
	o.later(t, subject, "a profile")
	k := store.NewRecordStore(o.Engine, o.storeConfig(), new(access.Tables))
	storetest.KeepRoads(t, k, storetest.LearnedMap(t), true)()
	if string(o.last(t, codec.Roads, subject)) != string(later(subject, "a profile")) {
		t.Errorf("the tile: got %q, want it unchanged", o.last(t, codec.Roads, subject))
	}
	if o.log.Count("damaged") > 0 {
		t.Errorf("the log: got damage in it, want none:\n%s", o.log)
	}
	o.met(t, codec.Roads)
}

func TestStreamOfNewer(t *testing.T) {
	t.Parallel()
	o := openBehind(t, Config{})
	_, info := stream(t, o.js, codec.Sources)
	next := info.Config
	next.Subjects = append(next.Subjects, "fence.*")
	next.Metadata[schemaKey] = "99"
	_, err := o.js.UpdateStream(t.Context(), next)
	testkit.NoError(t, err)
	again := openBehind(t, Config{URLs: o.config.URLs})
	if _, info = stream(t, again.js, codec.Sources); !slices.Contains(info.Config.Subjects, "fence.*") {
		t.Errorf("the subjects: got %q, want fence.* among them", info.Config.Subjects)
	}
}

// A node that received nothing for half the time of markers cannot know which vehicles were
// forgotten.
func TestAwayForTooLong(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	f := &feed{e: e, stream: codec.States, filters: []string{">"}}
	f.longest = e.config.Patience.Markers / 2
	f.apply = func(store.Record) error { return nil }
	stop := background(t, func(ctx context.Context) error { return f.Run(ctx, func() {}) })
	testkit.NoError(t, f.Wait(testkit.Context(t), 1)) // until a heartbeat comes
	stop()
	f.heard = f.heard.Add(-10 * time.Minute) // as if the feed had been silent for ten minutes
	if err := f.Run(t.Context(), func() {}); !errors.Is(err, store.ErrReplaced) ||
		!strings.Contains(err.Error(), "left no trace") {
		t.Errorf("Run after a silence: got %v, want %v that left no trace", err, store.ErrReplaced)
	}
	if err := <-e.Failed(); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("the engine: got %v, want %v", err, store.ErrReplaced)
	}
}
