package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store/backupfile"
	"example.org/carstate/internal/store/codec"
)

// ROADS contains the profiles of roads. It has one record for each tile, which is a square of the
// map. All profiles can be learned again from cars, so their loss is harmless. A record that is
// damaged or of a newer version is skipped and never prevents a start. A failed write is retried
// with the next batch. Messages between nodes about the present traffic may be lost. The name of a
// tile is a place, so it never appears in a log, an error or a metric.
//
// Each tile has one writer. The tile's name assigns the tile to a partition, and the owner of that
// partition writes the tile. For about a second after a partition has moved, a tile may have two
// writers. This is harmless: both have received the same evidence and store almost the same
// profile.

// Times and limits of storing and sharing roads.
const (
	// shareEvery is the interval at which nodes send each other evidence (see [RoadSharing]).
	shareEvery = time.Second
	// shareBytes is the maximum size of a message with evidence for other nodes, in bytes.
	shareBytes = 256 << 10
	// loadPause is the pause after a failed attempt to read the profiles.
	loadPause = 500 * time.Millisecond
	// A batch of tiles is complete when it has roadBatch tiles or at least roadBatchBytes bytes.
	roadBatch      = 250
	roadBatchBytes = 4 << 20
)

// RoadSharing is implemented by an engine of several nodes. The nodes use it to send each other
// what their cars show of the present traffic (evidence). Messages may be lost.
type RoadSharing interface {
	// ShareRoads sends evidence to the other nodes. If they cannot be reached, it is dropped,
	// because it would arrive too late to show the present traffic.
	ShareRoads(evidence []byte) error
	// ListenRoads calls take with each message of another node, or with an error if the message is
	// invalid. stop ends these calls.
	ListenRoads(take func(evidence []byte, err error)) (stop func())
}

// roadStore maintains one node's map of roads (m). It loads the stored profiles of roads into the
// map, stores changed profiles, and exchanges evidence of the present traffic with other nodes.
type roadStore struct {
	*RecordStore
	m    *road.Map
	next uint64 // sequence of ROADS from which to read on
	// forgotten is the sequence of the record of forgotten boxes that was last read.
	forgotten uint64
	// owned holds the partitions that this node owned when the node last checked.
	owned map[int]bool
	// unsaved holds changed tiles (squares of the map), packed, that are not stored yet.
	unsaved map[road.Tile][]byte
	// unread holds tiles whose stored record a newer version of carstate wrote. This node does not
	// replace such a record.
	unread  map[road.Tile]bool
	failing lograte.Warning
}

// KeepRoads maintains a node's map of roads until the context ends. First it loads the stored
// profiles and calls loaded. If the profiles cannot be read, it retries every half second; if the
// context ends before it succeeds, it calls loaded all the same. Then, at the interval
// Patience.Roads, it adds the profiles that other nodes have stored. In a cluster, it also adds the
// evidence of other nodes' cars as it arrives. Errors are logged, not returned.
//
// folds says whether this node is a derive node. A derive node also sends the evidence of its own
// cars to the other nodes. In addition, it stores the profiles that have changed in its partitions,
// at the same interval and when the context ends.
func (k *RecordStore) KeepRoads(ctx context.Context, m *road.Map, folds bool, loaded func()) {
	(&roadStore{
		RecordStore: k, m: m, next: 1, owned: make(map[int]bool), unsaved: make(map[road.Tile][]byte),
		unread: make(map[road.Tile]bool),
	}).run(ctx, folds, loaded)
}

func (k *roadStore) run(ctx context.Context, folds bool, loaded func()) {
	sharing, shared := k.engine.(RoadSharing)
	shares := shared && folds
	if shares {
		k.m.Share()
	}
	if shared {
		defer sharing.ListenRoads(func(evidence []byte, err error) {
			if err == nil {
				err = k.m.Absorb(evidence)
			}
			if err != nil {
				k.roadsRefused.WithLabelValues(refusedEvidence).Inc()
			}
		})()
	}
	for !k.load(ctx) && periodic.Pause(ctx, loadPause) == nil { // until it succeeds or the context ends
	}
	loaded()
	share, store := time.NewTicker(shareEvery), time.NewTicker(k.config.Patience.Roads)
	defer share.Stop()
	defer store.Stop()
	for {
		select {
		case <-ctx.Done():
			if folds {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
				defer cancel()
				maps.Copy(k.owned, k.engine.Folding()) // derive may have released its partitions already
				k.update(last, folds)
			}
			return
		case <-share.C:
			if owned := k.engine.Folding(); ctx.Err() == nil { // derive releases all partitions when ctx ends
				k.owned = owned
			}
			if !shares {
				continue
			}
			for _, evidence := range k.m.Drain(shareBytes) {
				if err := sharing.ShareRoads(evidence); err != nil { // the evidence is lost
					k.failing.Log(k.log, "cannot send road evidence to the other nodes", "error", err)
				}
			}
		case <-store.C:
			k.update(ctx, folds)
		case <-k.roadsChanged:
			k.update(ctx, folds)
		}
	}
}

// update reads ROADS, and then stores what has changed, so that the stored tiles include the records
// of other nodes.
func (k *roadStore) update(ctx context.Context, folds bool) {
	if k.load(ctx) && folds {
		k.store(ctx)
	}
}

// load adds to the map the profiles that were stored in ROADS since the last call, and reports
// whether ROADS could be read. A damaged profile is logged and skipped.
func (k *roadStore) load(ctx context.Context) bool {
	seq, boxes, err := k.forgottenBoxes(ctx)
	for _, f := range boxes {
		if seq > k.forgotten && f.After >= k.forgotten {
			k.m.Forget(f.Box)
		}
	}
	if err != nil {
		k.failing.Log(k.log, "cannot read which roads were forgotten; will retry", "error", err)
		return false
	}
	k.forgotten = max(k.forgotten, seq)
	next, damaged, err := k.readRoads(ctx, k.next, boxes, func(tile road.Tile, r Record) error {
		if r.Newer {
			k.unread[tile] = true
			return nil
		}
		delete(k.unread, tile)
		return k.m.Load(tile, r.Body)
	})
	k.next = next
	if damaged > 0 {
		k.log.Warn("ignoring damaged road profiles: these roads will be learned again", "records", damaged)
	}
	if err != nil && ctx.Err() == nil {
		k.failing.Log(k.log, "cannot read the road profiles; will retry", "error", err)
	}
	return err == nil
}

// readRoads calls do with each stored tile, without the profiles of forgotten boxes, as
// [Records.ScanFrom] does with each record.
func (k *RecordStore) readRoads(
	ctx context.Context, from uint64, boxes []forgottenBox, do func(road.Tile, Record) error,
) (next uint64, damaged int, err error) {
	next, damaged, err = k.engine.ScanFrom(ctx, codec.Roads, from, func(r Record) error {
		if r.Subject == forgottenSubject {
			return nil
		}
		tile, err := road.ParseTile(strings.TrimPrefix(r.Subject, codec.RoadPrefix))
		if err != nil {
			return err
		}
		var forgotten []road.Box
		for _, f := range boxes {
			if r.Seq <= f.After {
				forgotten = append(forgotten, f.Box)
			}
		}
		if kept := road.Outside(r.Body, forgotten); len(kept) < len(r.Body) {
			r.Body, r.Sealed = kept, codec.Seal(r.Subject, append([]byte{0}, kept...))
		}
		return do(tile, r)
	})
	k.roadsRefused.WithLabelValues(refusedProfile).Add(float64(damaged))
	return next, damaged, err
}

// store stores those tiles of this node's partitions that have changed. Tiles that cannot be stored
// are kept for the next call.
func (k *roadStore) store(ctx context.Context) {
	maps.Copy(k.unsaved, k.m.Changed(func(t road.Tile) bool {
		return k.owned[codec.PartitionOf(t.String(), k.engine.Partitions())]
	}))
	for t := range k.unread {
		delete(k.unsaved, t)
	}
	var batch []road.Tile
	var writes []Write
	size := 0
	flush := func() bool {
		if len(writes) == 0 {
			return true
		}
		if _, err := k.engine.Store(ctx, codec.Roads, writes); err != nil {
			k.failing.Log(k.log, "cannot store the road profiles; will retry", "tiles", len(k.unsaved), "error", err)
			return false
		}
		for _, t := range batch {
			delete(k.unsaved, t)
		}
		batch, writes, size = nil, nil, 0
		return true
	}
	for t, packed := range k.unsaved {
		subject := codec.RoadPrefix + t.String()
		batch = append(batch, t)
		writes = append(writes, Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, packed...))})
		if size += len(packed); (len(batch) == roadBatch || size >= roadBatchBytes) && !flush() {
			return
		}
	}
	flush()
}

// forgottenSubject is the subject of the record of boxes whose roads were forgotten. It is no tile.
const forgottenSubject = codec.RoadPrefix + "forgotten"

// forgottenBox is a box whose profiles are not used if their sequence is at most After. Only the
// newest mostForgotten are kept; the owners of the tiles have long stored them without these profiles.
type forgottenBox struct {
	Box   road.Box `json:"box"`
	After uint64   `json:"after"`
}

const mostForgotten = 1000

// ForgetRoads stores that the roads in a box are forgotten. This node forgets them at once, and the
// others when they next read ROADS, at the latest after Patience.Roads.
func (k *RecordStore) ForgetRoads(ctx context.Context, b road.Box) error {
	end, err := k.engine.End(ctx, codec.Roads)
	if err != nil {
		return err
	}
	with := func(is Record) ([]Write, error) {
		boxes := decodeForgotten(is)
		boxes = append(boxes[max(0, len(boxes)-mostForgotten+1):], forgottenBox{b, end.Last})
		return appendJSON(nil, forgottenSubject, boxes)
	}
	_, err = Change(ctx, k.engine, k.config.Patience.Store, codec.Roads, forgottenSubject, with)
	if errors.Is(err, codec.ErrDamaged) { // as mostForgotten says, its boxes are rarely needed
		writes, _ := with(Record{})
		_, err = k.engine.Store(ctx, codec.Roads, writes)
	}
	k.readRoadsSoon()
	return err
}

func (k *RecordStore) readRoadsSoon() {
	select {
	case k.roadsChanged <- struct{}{}:
	default:
	}
}

// forgottenBoxes returns the boxes whose roads were forgotten, and the sequence of their record. A
// damaged record has none.
func (k *RecordStore) forgottenBoxes(ctx context.Context) (seq uint64, boxes []forgottenBox, err error) {
	is, err := k.engine.Last(ctx, codec.Roads, forgottenSubject)
	if errors.Is(err, codec.ErrDamaged) || errors.Is(err, codec.ErrNewer) {
		return 0, nil, nil
	}
	return is.Seq, decodeForgotten(is), err
}

func decodeForgotten(is Record) (boxes []forgottenBox) {
	if json.Unmarshal(is.Body, &boxes) != nil {
		return nil
	}
	return boxes
}

// backUpRoads adds the stored profiles of roads to a backup. It skips records that are damaged or
// were written by a newer version of carstate.
func (k *RecordStore) backUpRoads(ctx context.Context, b *backupfile.Writer) error {
	_, boxes, err := k.forgottenBoxes(ctx)
	if err != nil {
		return fmt.Errorf("cannot back up %s: %w", codec.Roads, err)
	}
	var failed error // error of writing the file
	_, _, err = k.readRoads(ctx, 1, boxes, func(tile road.Tile, r Record) error {
		if r.Newer {
			return nil
		}
		if err := new(road.Map).Load(tile, r.Body); err != nil {
			return err // skipped, because with this record a restore would refuse the whole backup
		}
		if failed == nil {
			failed = b.Add(r.Subject, r.Sealed)
		}
		return nil
	})
	if err = cmp.Or(failed, err); err != nil {
		return fmt.Errorf("cannot back up %s: %w", codec.Roads, err)
	}
	return nil
}

// Reasons why a record or a message about roads was refused, as values of a metric's label.
const (
	refusedProfile  = "profile"
	refusedEvidence = "evidence"
)
