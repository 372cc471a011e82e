package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

// RecordStore stores tokens, sources, operators, tombstones, usage, roads and the audit. From
// feeds, it maintains this node's tables of tokens with their usage, sources, operators and
// tombstones. When a call that changes a record returns nil, the record is on disk and in this
// node's table. The tables of other nodes follow within the latency of their feeds.
type RecordStore struct {
	engine     Engine
	config     Config
	log        *slog.Logger
	now        func() time.Time
	forgotten  *access.Forgotten
	tables     *access.Tables
	tokenFeed  Feed
	srcFeed    Feed
	usage      usageState
	restoring  sync.Mutex // held during a restore, so that there is only one at a time
	lastErased time.Time  // when Erase last erased
	// firstSeen maps tombstones to the time when EraseDue first saw them. It contains only
	// tombstones whose field Quiet is zero, which means that nodes may still be storing telemetry
	// of the vehicle.
	firstSeen map[access.Tombstone]time.Time

	roadsChanged chan struct{}          // receives a value after a restore or a forget of roads
	roadsRefused *prometheus.CounterVec // label reason
}

// unfit is the error for an undamaged record with content that no service can have written.
// [errors.Is] treats it as [codec.ErrDamaged], so that a node does not start with such a record.
// The text of the error has the kind of the record and what is wrong, but none of the record's
// content.
type unfit struct {
	kind string
	err  error
}

func (u unfit) Error() string { return fmt.Sprintf("%v: %s: %v", codec.ErrDamaged, u.kind, u.err) }

// Is reports whether err is [codec.ErrDamaged].
func (unfit) Is(err error) bool { return err == codec.ErrDamaged }

// change is like [Change], but returns only once this node's table holds the record. It is for
// records that this node also receives from a feed. If the feed has not delivered the record after
// ownFeedTimeout, change returns the sequence and an error, although the record is stored.
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

// ownFeedTimeout is the maximum time that a node waits until its own feed delivers a record that it
// has stored.
const ownFeedTimeout = 4 * requestTimeout

// appendJSON appends a write of a record whose body is v as JSON.
func appendJSON(writes []Write, subject string, v any) ([]Write, error) {
	text, err := json.Marshal(v)
	return append(writes, Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, text...))}), err
}

var errScarce = errors.New("the room for stored data is nearly used up: " +
	"operators can only revoke, remove and forget, and the admin key is not limited")

// Audit stores one event. When it returns nil the event is on disk.
func (k *RecordStore) Audit(ctx context.Context, ev access.Event) error {
	if !ev.Reserved() && k.engine.Scarce() {
		return errScarce
	}
	writes, err := appendJSON(nil, codec.AuditSubject, ev)
	if err == nil {
		_, err = k.engine.Store(ctx, codec.Audit, writes)
	}
	return err
}

// newerEvent is the text that is shown in place of an audit event of a newer version.
const newerEvent = "written by a newer version of carstate: use an upgraded node to see it"

// AuditPage returns events of the audit as [Records.Before] returns records. An event of a newer
// version, which this version cannot decode, is replaced by an event with the text newerEvent.
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
