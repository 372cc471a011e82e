package store

import (
	"context"
	"crypto/rand"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store/codec"
)

// When a RecordStore's call that changes a record returns nil, it is on disk and in this node's
// table.
type RecordStore struct {
	engine     Engine
	config     Config
	forgotten  *access.Forgotten
	tables     *access.Tables
	Tokens     Feed // maintains the table of tokens and their usage
	Sources    Feed
	by         string // names this process in records of usage
	lastErased time.Time

	roadsChanged chan struct{} // receives a value after a restore or a forget of roads
	roadsRefused *prometheus.CounterVec
}

// Unfit is the error of an undamaged record that no service can have written. It is a
// [codec.ErrDamaged], so that a node does not start, and has nothing of the record in its text.
type Unfit struct {
	Kind string
	Err  error
}

func (u Unfit) Error() string { return fmt.Sprintf("%v: %s: %v", codec.ErrDamaged, u.Kind, u.Err) }

func (Unfit) Is(err error) bool { return err == codec.ErrDamaged }

// If the feed does not deliver the record to this node's table in time, change returns an error,
// but the record is stored.
func (k *RecordStore) change(
	ctx context.Context, stream, subject string, change func(is Record) ([]Write, error),
) error {
	seq, err := Change(ctx, k.engine, k.config.Patience.Store, stream, subject, change)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ownFeedTimeout)
	defer cancel()
	if stream == codec.Tokens {
		return k.Tokens.Wait(ctx, seq)
	}
	return k.Sources.Wait(ctx, seq)
}

const ownFeedTimeout = 4 * requestTimeout

func AppendJSON(writes []Write, subject string, v any) ([]Write, error) {
	text, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	return append(writes, Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, text...))}), err
}

func (k *RecordStore) Audit(ctx context.Context, ev access.Event) error {
	if !ev.Reserved() && k.engine.Scarce() {
		return ErrScarce
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
		engine: e, config: c, forgotten: e.Forgotten(), tables: tables,
		by: rand.Text(), roadsChanged: make(chan struct{}, 1),
	}
	tokenSets, sourceSets := Sets{}, Sets{}
	k.Tokens = e.Feed(codec.Tokens, func(r Record) error { return k.apply(r, tokenSets) })
	k.Sources = e.Feed(codec.Sources, func(r Record) error { return k.apply(r, sourceSets) })
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

func (k *RecordStore) apply(r Record, large Sets) error {
	kind, rest, _ := strings.Cut(r.Subject, ".")
	if r.Newer {
		k.applyNewer(kind, rest)
		return nil
	}
	switch kind {
	case "token", "source", "operator":
		c, _, err := large.Credential(r)
		if err != nil {
			return err
		}
		k.tables.Of(c.Kind).Put(c)
	case "tokenset", "sourceset":
		return large.Apply(r)
	case "tokenuse":
		return k.applyUsage(rest, r)
	case "tombstone":
		t, err := decodeTombstone(r.Subject, r.Body)
		if err != nil {
			return err
		}
		t.Seen = k.config.Now()
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

func (k *RecordStore) applyNewer(kind, rest string) {
	switch kind {
	case "token":
		k.tables.Tokens.Lose(rest)
	case "source":
		k.tables.Sources.Lose(rest)
	case "operator":
		k.tables.Operators.Lose(rest)
	case "tombstone":
		if hash, err := access.ParseVehicleHash(rest); err == nil {
			// Only nodes that can decode the record erase.
			k.forgotten.Put(access.Tombstone{Vehicle: hash, Forgotten: k.now(), State: access.StateErased, Unread: true})
		}
	case codec.VIDKeysSubject:
		k.config.Newer.lacksKeys.Store(true)
	}
}

const askPause = 100 * time.Millisecond

// While a partition has no owner, as during a takeover, AskOwner retries for Patience.Store. The
// reply of an owner that stores a checkpoint first may take longer.
func (k *RecordStore) AskOwner(ctx context.Context, p int, q *Question) (r Reply, err error) {
	for began := time.Now(); ; {
		r, err = k.engine.Ask(ctx, p, q)
		if !errors.Is(err, ErrNoOwner) || time.Since(began) > k.config.Patience.Store || periodic.Pause(ctx, askPause) != nil {
			return r, err
		}
	}
}

// AskOwners asks one after the other, because folding comes first.
func (k *RecordStore) AskOwners(ctx context.Context, kind string) ([]Reply, error) {
	replies := make([]Reply, k.engine.Partitions())
	for p := range replies {
		var err error
		if replies[p], err = k.AskOwner(ctx, p, &Question{Kind: kind}); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// Check checks a record of a backup, in which set records precede their credential. The error is
// [Unfit] if no service can have written the record, and otherwise [codec.ErrDamaged], also if set
// records are missing.
func (s Sets) Check(r Record) (err error) {
	kind, rest, _ := strings.Cut(r.Subject, ".")
	switch kind {
	case "tombstone":
		_, err = decodeTombstone(r.Subject, r.Body)
	case codec.VIDKeysSubject:
		_, err = decodeVIDKeys(r.Body)
	case "token", "source", "operator":
		c, sets, bad := s.Credential(r)
		if err = bad; sets > 0 && c.Vehicles.Len() == 0 {
			err = codec.ErrDamaged
		}
	case "tokenuse":
		id, _, _ := strings.Cut(rest, ".")
		if _, err = decodeUsage(r.Body); err == nil {
			if name := access.CheckName(access.TokenKind, id); name != nil {
				err = Unfit{"usage", name}
			}
		}
	case "tokenset", "sourceset":
		err = s.Apply(r)
	}
	return err
}
