package store

import (
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"maps"
	"strings"
	"time"

	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store/codec"
)

// A damaged record of roads is skipped and never prevents a start: profiles can be learned again.
// The name of a tile is a place: it appears in no log, error or metric.
//
// Only the owner of a tile's partition stores the tile. For about a second after the partition has
// moved, two nodes may store it; both have received the same evidence.

const (
	shareEvery     = time.Second
	shareBytes     = 256 << 10
	loadPause      = 500 * time.Millisecond
	roadBatch      = 250
	roadBatchBytes = 4 << 20
)

// RoadSharing sends the other nodes what the cars of this one show of the present traffic. Messages
// may be lost.
type RoadSharing interface {
	ShareRoads(evidence []byte)
	// ListenRoads calls take with an error for an invalid message.
	ListenRoads(take func(evidence []byte, err error)) (stop func())
}

type roadStore struct {
	*RecordStore
	m         *road.Map
	next      uint64
	forgotten uint64 // sequence of the last read record of forgotten boxes
	owned     map[int]bool
	unsaved   map[road.Tile][]byte
	unread    map[road.Tile]bool // tiles that a newer version stored; not replaced
	failing   lograte.Warning
}

// KeepRoads loads the stored profiles, until it succeeds or ctx ends, and calls loaded. Then it
// adds what other nodes store, every Patience.Roads, and on a cluster their evidence at once. A
// node that folds also sends its evidence, and stores the changed profiles of its partitions, also
// when ctx ends.
func (s *RecordStore) KeepRoads(ctx context.Context, m *road.Map, folds bool, loaded func()) {
	k := &roadStore{
		RecordStore: s, m: m, next: 1, owned: make(map[int]bool), unsaved: make(map[road.Tile][]byte),
		unread: make(map[road.Tile]bool),
	}
	sharing, shared := k.engine.(RoadSharing)
	if shared && folds {
		k.m.Share()
	}
	if shared {
		defer sharing.ListenRoads(func(evidence []byte, err error) {
			if err == nil {
				err = k.m.Absorb(evidence)
			}
			if err != nil {
				k.roadsRefused.WithLabelValues("evidence").Inc()
			}
		})()
	}
	for !k.load(ctx) && periodic.Pause(ctx, loadPause) == nil {
	}
	loaded()
	share, store := time.Tick(shareEvery), time.Tick(k.config.Patience.Roads)
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
		case <-share:
			if owned := k.engine.Folding(); ctx.Err() == nil { // derive releases all partitions when ctx ends
				k.owned = owned
			}
			for _, evidence := range k.m.Drain(shareBytes) { // none unless Share was called
				sharing.ShareRoads(evidence)
			}
		case <-store:
			k.update(ctx, folds)
		case <-k.roadsChanged:
			k.update(ctx, folds)
		}
	}
}

// update loads before it stores, so that what it stores includes the records of other nodes.
func (k *roadStore) update(ctx context.Context, folds bool) {
	if k.load(ctx) && folds && !k.engine.Scarce() {
		k.store(ctx)
	}
}

func (k *roadStore) load(ctx context.Context) bool {
	seq, boxes, err := k.forgottenBoxes(ctx)
	for _, f := range boxes {
		if seq > k.forgotten && f.After >= k.forgotten {
			k.m.Forget(f.Box)
		}
	}
	if err != nil {
		k.failing.Log(k.config.Log, "cannot read which roads were forgotten; will retry", "error", err)
		return false
	}
	k.forgotten = max(k.forgotten, seq)
	next, damaged, err := k.readRoads(ctx, k.next, boxes, func(tile road.Tile, r Record) error {
		if r.Newer {
			k.unread[tile] = true
			delete(k.unsaved, tile)
			return nil
		}
		delete(k.unread, tile)
		return k.m.Load(tile, r.Body)
	})
	k.next = next
	if damaged > 0 {
		k.config.Log.Warn("ignoring damaged road profiles: these roads will be learned again", "records", damaged)
	}
	if err != nil && ctx.Err() == nil {
		k.failing.Log(k.config.Log, "cannot read the road profiles; will retry", "error", err)
	}
	return err == nil
}

// readRoads leaves out the profiles of forgotten boxes.
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
	k.roadsRefused.WithLabelValues("profile").Add(float64(damaged))
	return next, damaged, err
}

func (k *roadStore) store(ctx context.Context) {
	maps.Copy(k.unsaved, k.m.Changed(func(t road.Tile) bool {
		return k.owned[codec.PartitionOf(t.String(), k.engine.Partitions())] && !k.unread[t]
	}))
	for len(k.unsaved) > 0 {
		var batch []road.Tile
		var writes []Write
		size := 0
		for t, packed := range k.unsaved {
			if len(batch) == roadBatch || size >= roadBatchBytes {
				break
			}
			subject := codec.RoadPrefix + t.String()
			batch, size = append(batch, t), size+len(packed)
			writes = append(writes, Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, packed...))})
		}
		if _, err := k.engine.Store(ctx, codec.Roads, writes); err != nil {
			k.failing.Log(k.config.Log, "cannot store the road profiles; will retry", "tiles", len(k.unsaved), "error", err)
			return
		}
		for _, t := range batch {
			delete(k.unsaved, t)
		}
	}
}

const forgottenSubject = codec.RoadPrefix + "forgotten" // No tile has this name.

// A profile in Box is not used if its record has at most the sequence After. Only the newest
// mostForgotten boxes are kept: the owners have long stored the tiles of older ones without these
// profiles.
type forgottenBox struct {
	Box   road.Box `json:"box"`
	After uint64   `json:"after"`
}

const mostForgotten = 1000

// Other nodes forget the roads within Patience.Roads.
func (k *RecordStore) ForgetRoads(ctx context.Context, b road.Box) error {
	ends, err := k.engine.Ends(ctx, codec.Roads)
	if err != nil {
		return err
	}
	with := func(is Record) ([]Write, error) {
		var boxes []forgottenBox
		_ = json.Unmarshal(is.Body, &boxes) // there may be no record
		boxes = append(boxes[max(0, len(boxes)-mostForgotten+1):], forgottenBox{b, ends[0]})
		return AppendJSON(nil, forgottenSubject, boxes)
	}
	_, err = Change(ctx, k.engine, k.config.Patience.Store, codec.Roads, forgottenSubject, with)
	if errors.Is(err, codec.ErrDamaged) { // the record is replaced: its boxes are rarely needed
		writes, _ := with(Record{})
		_, err = k.engine.Store(ctx, codec.Roads, writes)
	}
	k.ReadRoadsSoon()
	return err
}

func (k *RecordStore) ReadRoadsSoon() {
	select {
	case k.roadsChanged <- struct{}{}:
	default:
	}
}

func (k *RecordStore) forgottenBoxes(ctx context.Context) (seq uint64, boxes []forgottenBox, err error) {
	is, err := k.engine.Last(ctx, codec.Roads, forgottenSubject)
	if errors.Is(err, codec.ErrDamaged) || errors.Is(err, codec.ErrNewer) {
		return 0, nil, nil
	}
	_ = json.Unmarshal(is.Body, &boxes) // there may be no record
	return is.Seq, boxes, err
}

// EachRoad leaves out tiles of a newer version, and malformed ones, with which a restore would
// refuse the whole backup.
func (k *RecordStore) EachRoad(ctx context.Context, do func(Record) error) error {
	_, boxes, err := k.forgottenBoxes(ctx)
	if err != nil {
		return err
	}
	var failed error
	_, _, err = k.readRoads(ctx, 1, boxes, func(tile road.Tile, r Record) error {
		if r.Newer || failed != nil {
			return nil
		}
		if err := new(road.Map).Load(tile, r.Body); err != nil {
			return err
		}
		failed = do(r)
		return nil
	})
	return cmp.Or(failed, err)
}
