package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

// When a call that changes a record returns nil, the record is on disk and in this node's table.
type RecordStore struct {
	engine     Engine
	config     Config
	log        *slog.Logger
	now        func() time.Time
	forgotten  *access.Forgotten
	tables     *access.Tables
	tokenFeed  Feed
	srcFeed    Feed
	by         string     // names this process in records of usage
	restoring  sync.Mutex // held during a restore
	lastErased time.Time
	// firstSeen says when EraseDue first saw a tombstone that is not quiet yet.
	firstSeen map[access.Tombstone]time.Time

	roadsChanged chan struct{} // receives a value after a restore or a forget of roads
	roadsRefused *prometheus.CounterVec
}

// unfit is for an undamaged record that no service can have written. It is a [codec.ErrDamaged], so
// that a node does not start with one, and has nothing of the record in its text.
type unfit struct {
	kind string
	err  error
}

func (u unfit) Error() string { return fmt.Sprintf("%v: %s: %v", codec.ErrDamaged, u.kind, u.err) }

func (unfit) Is(err error) bool { return err == codec.ErrDamaged }

// change returns once this node's table has the record. If the feed does not deliver it in time,
// the error comes with the sequence, and the record is stored.
func (k *RecordStore) change(
	ctx context.Context, stream, subject string, change func(is Record) ([]Write, error),
) (seq uint64, err error) {
	if seq, err = Change(ctx, k.engine, k.config.Patience.Store, stream, subject, change); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownFeedTimeout)
	defer cancel()
	if stream == codec.Tokens {
		return seq, k.tokenFeed.Wait(ctx, seq)
	}
	return seq, k.srcFeed.Wait(ctx, seq)
}

const ownFeedTimeout = 4 * requestTimeout

func AppendJSON(writes []Write, subject string, v any) ([]Write, error) {
	text, err := json.Marshal(v)
	return append(writes, Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, text...))}), err
}

var errScarce = errors.New("the room for stored data is nearly used up: " +
	"operators can only revoke, remove and forget, and the admin key is not limited")

func (k *RecordStore) Audit(ctx context.Context, ev access.Event) error {
	if !ev.Reserved() && k.engine.Scarce() {
		return errScarce
	}
	writes, err := AppendJSON(nil, codec.AuditSubject, ev)
	if err == nil {
		_, err = k.engine.Store(ctx, codec.Audit, writes)
	}
	return err
}

const newerEvent = "written by a newer version of carstate: use an upgraded node to see it"

func (k *RecordStore) AuditPage(
	ctx context.Context, before uint64, limit int,
) (events []access.Event, older uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	records, older, err := k.engine.Before(ctx, codec.Audit, before, limit)
	if err != nil {
		return nil, 0, err
	}
	events = make([]access.Event, len(records))
	for i, r := range records {
		if r.Newer {
			events[i] = access.Event{
				Time: r.Stored.UTC(), Actor: "unknown", Action: "unknown", Detail: newerEvent,
				Outcome: "unknown",
			}
			continue
		}
		if err := json.Unmarshal(r.Body, &events[i]); err != nil {
			return nil, 0, codec.ErrDamaged
		}
	}
	return events, older, nil
}

func NewRecordStore(e Engine, c Config, tables *access.Tables) *RecordStore {
	c = c.WithDefaults()
	k := &RecordStore{
		engine: e, config: c, log: c.Log, now: c.Now, forgotten: e.Forgotten(), tables: tables,
		by: rand.Text(), roadsChanged: make(chan struct{}, 1),
	}
	tokenSets, sourceSets := sets{}, sets{}
	k.tokenFeed = e.Feed(codec.Tokens, func(r Record) error { return k.apply(r, tokenSets) })
	k.srcFeed = e.Feed(codec.Sources, func(r Record) error { return k.apply(r, sourceSets) })
	k.roadsRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_roads_refused_total",
		Help: "Stored profiles of roads, and messages of other nodes about roads, that were ignored because they " +
			"are invalid.",
	}, []string{"reason"})
	k.roadsRefused.WithLabelValues("profile")
	k.roadsRefused.WithLabelValues("evidence")
	k.config.Registry.MustRegister(k.roadsRefused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_forgotten_vehicles",
		Help: "Forgotten vehicles, whose telemetry is refused.",
	}, func() float64 { return float64(k.forgotten.Len()) }))
	return k
}

// RunTokens maintains the table of tokens and their usage, as [Feed.Run] does.
func (k *RecordStore) RunTokens(ctx context.Context, caughtUp func()) error {
	return k.tokenFeed.Run(ctx, caughtUp)
}

func (k *RecordStore) RunSources(ctx context.Context, caughtUp func()) error {
	return k.srcFeed.Run(ctx, caughtUp)
}

func (k *RecordStore) apply(r Record, large sets) error {
	kind, rest, _ := strings.Cut(r.Subject, ".")
	if r.Newer && kind != "tokenuse" {
		k.applyNewer(kind, rest, large)
		return nil
	}
	switch kind {
	case "token", "source", "operator":
		c, granted, err := decodeCredential(r)
		if err != nil {
			return err
		}
		large.record(r.Subject, granted, func(v access.Vehicles) {
			c.Vehicles = v
			k.tables.Of(c.Kind).Put(c)
		})
	case "tokenset", "sourceset":
		return large.apply(r)
	case "tokenuse":
		return k.applyUsage(rest, r)
	case "tombstone":
		t, err := decodeTombstone(r.Subject, r.Body)
		if err != nil {
			return err
		}
		k.forgotten.Put(t)
	case codec.VIDKeysSubject:
		keys, err := decodeVIDKeys(r.Body)
		if err != nil {
			return err
		}
		k.forgotten.SetKeys(keys.Keys...)
	}
	return nil
}

func (k *RecordStore) applyNewer(kind, rest string, large sets) {
	delete(large, kind+"."+rest)
	switch kind {
	case "token":
		k.tables.Tokens.Lose(rest)
	case "source":
		k.tables.Sources.Lose(rest)
	case "operator":
		k.tables.Operators.Lose(rest)
	case "tombstone":
		if hash, err := access.ParseVehicleHash(rest); err == nil {
			// Nodes that can decode the record erase.
			now := k.now()
			k.forgotten.Put(access.Tombstone{Vehicle: hash, Forgotten: now, Removed: true, Erased: now, Unread: true})
		}
	case codec.VIDKeysSubject:
		k.config.Newer.loseKeys()
	}
}
