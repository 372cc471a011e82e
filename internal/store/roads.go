package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"carstate/internal/lograte"
	"carstate/internal/road"
	"carstate/internal/store/backupfile"
	"carstate/internal/store/codec"
)

// ROADS holds the profiles of roads, one record a tile of the map, and what is known
// of roads is soft: all of it is learned again from cars. So a record that is damaged, or of a
// newer version, is left out and never ends a start, a write that failed is tried again
// with the next batch, and what nodes tell each other of the present may be lost. A tile's
// name is a place, and is in no log, error or metric.
//
// Each tile has one writer: it belongs to a partition by its name, and the node that
// folds the partition writes it. For about a second after a partition has moved there
// may be two, which have seen the same and store much the same.

// How roads are stored and shared.
const (
	// defaultRoads is how often profiles are stored: they change when a quarter hour
	// ends, so nothing is gained by doing it more often, and a crash costs a road
	// one of its quarter hours at most.
	defaultRoads = 5 * time.Minute
	// shareEvery is how often nodes tell each other what their cars show.
	shareEvery = time.Second
	// shareBytes bounds one message of it.
	shareBytes = 256 << 10
	// loadAgain is how long to rest when the profiles cannot be read.
	loadAgain = 500 * time.Millisecond
	// A batch of tiles ends at roadBatch of them or at roadBatchBytes.
	roadBatch      = 250
	roadBatchBytes = 4 << 20
)

func roadSubject(t road.Tile) string { return codec.RoadPrefix + t.String() }

// tileOfRoad takes the tile from a record's subject.
func tileOfRoad(subject string) (road.Tile, error) {
	return road.ParseTile(strings.TrimPrefix(subject, codec.RoadPrefix))
}

// RoadSharing is what an engine that several nodes share does besides: it carries between
// them what their cars show at present. What is sent may be lost.
type RoadSharing interface {
	// ShareRoads sends evidence to the other nodes. While they are out of reach it is
	// dropped, because it would be old by the time it arrived.
	ShareRoads(evidence []byte) error
	// ListenRoads calls take for what other nodes send, or with the reason why a message
	// makes no sense, until the returned function is called.
	ListenRoads(take func(evidence []byte, err error)) (stop func())
}

// roadKeeper keeps one node's map.
type roadKeeper struct {
	*RecordStore
	m    *road.Map
	next uint64 // sequence from which on ROADS was not read yet
	// mine are the partitions that this node folded a moment ago.
	mine map[int]bool
	// unsaved are tiles that are to be stored.
	unsaved map[road.Tile][]byte
	// unread are tiles that a newer version stored, which stay as they are.
	unread  map[road.Tile]bool
	failing lograte.Warning
}

// KeepRoads keeps a node's map of roads until the context ends. First it takes in what
// is stored, and then calls loaded; from then on, what other nodes store and their cars
// show. With judges set, what this node's own cars show is sent to the others, and what
// changed on the tiles that are this node's is stored, every Patience.Roads and at the
// end.
func (k *RecordStore) KeepRoads(ctx context.Context, m *road.Map, judges bool, loaded func()) {
	(&roadKeeper{RecordStore: k, m: m, next: 1, mine: make(map[int]bool), unsaved: make(map[road.Tile][]byte), unread: make(map[road.Tile]bool)}).run(ctx, judges, loaded)
}

func (k *roadKeeper) run(ctx context.Context, judges bool, loaded func()) {
	sharing, shared := k.engine.(RoadSharing)
	shares := shared && judges
	if shares {
		k.m.Share()
	}
	if shared {
		defer k.listen(sharing)()
	}
	k.loadPatiently(ctx)
	loaded()
	share, store := time.NewTicker(shareEvery), time.NewTicker(k.config.Patience.Roads)
	defer share.Stop()
	defer store.Stop()
	for {
		select {
		case <-ctx.Done():
			if judges {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
				defer cancel()
				maps.Copy(k.mine, k.engine.Folding()) // derive may have ended already
				if k.load(last) {
					k.store(last)
				}
			}
			return
		case <-share.C:
			if mine := k.engine.Folding(); ctx.Err() == nil { // derive gives all up with this context
				k.mine = mine
			}
			if shares {
				k.share(sharing)
			}
		case <-store.C:
			// Records that others stored are read first, so that a tile is not stored without them.
			if k.load(ctx) && judges {
				k.store(ctx)
			}
		case <-k.roadsRestored:
			k.load(ctx)
		}
	}
}

// loadPatiently loads what is stored, trying until it could or the context ends.
func (k *roadKeeper) loadPatiently(ctx context.Context) {
	for !k.load(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(loadAgain):
		}
	}
}

// load takes in what was stored since the last time, and reports whether it could.
func (k *roadKeeper) load(ctx context.Context) bool {
	next, damaged, err := k.readRoads(ctx, k.next, func(tile road.Tile, r Record) error {
		if r.Newer {
			k.unread[tile] = true
			return nil
		}
		delete(k.unread, tile)
		return k.m.Load(tile, r.Body)
	})
	k.next = next
	if damaged > 0 {
		k.log.Warn("stored profiles of roads are damaged and left out: these roads are learned again", "records", damaged)
	}
	if err != nil && ctx.Err() == nil {
		k.failing.Log(k.log, "the profiles of roads cannot be read: trying again", "error", err)
	}
	return err == nil
}

// readRoads calls do for the stored tiles from a sequence on, and returns that of the
// next record. Records that are damaged, or that do refuses, are counted and left out. Of
// do's errors one that wraps [ErrStop] ends it.
func (k *RecordStore) readRoads(ctx context.Context, from uint64, do func(road.Tile, Record) error) (next uint64, damaged int, err error) {
	next, damaged, err = k.engine.ScanFrom(ctx, codec.Roads, from, func(r Record) error {
		tile, err := tileOfRoad(r.Subject)
		if err != nil {
			return err
		}
		return do(tile, r)
	})
	k.roadsRefused[refusedProfile].Add(float64(damaged))
	return next, damaged, err
}

// writes reports whether a tile is this node's to store.
func (k *roadKeeper) writes(t road.Tile) bool {
	return k.mine[codec.PartitionOf(t.String(), k.engine.Partitions())]
}

// store stores what changed on this node's tiles. What cannot be stored is kept for the
// next time.
func (k *roadKeeper) store(ctx context.Context) {
	maps.Copy(k.unsaved, k.m.Changed(k.writes))
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
			k.failing.Log(k.log, "the profiles of roads cannot be stored: trying again later", "tiles", len(k.unsaved), "error", err)
			return false
		}
		for _, t := range batch {
			delete(k.unsaved, t)
		}
		batch, writes, size = nil, nil, 0
		return true
	}
	for t, packed := range k.unsaved {
		subject := roadSubject(t)
		batch = append(batch, t)
		writes = append(writes, Write{Subject: subject, Record: codec.Seal(subject, append([]byte{0}, packed...))})
		if size += len(packed); (len(batch) == roadBatch || size >= roadBatchBytes) && !flush() {
			return
		}
	}
	flush()
}

// share sends the other nodes what this node's cars showed.
func (k *roadKeeper) share(to RoadSharing) {
	for _, evidence := range k.m.Drain(shareBytes) {
		if err := to.ShareRoads(evidence); err != nil {
			k.failing.Log(k.log, "other nodes cannot be told of the roads", "error", err)
		}
	}
}

// listen takes in what other nodes tell until the returned function is called.
func (k *roadKeeper) listen(to RoadSharing) (stop func()) {
	return to.ListenRoads(func(evidence []byte, err error) {
		if err == nil {
			err = k.m.Absorb(evidence)
		}
		if err != nil {
			k.roadsRefused[refusedEvidence].Inc()
		}
	})
}

// backUpRoads adds the profiles to a backup. Damaged ones are left out.
func (k *RecordStore) backUpRoads(ctx context.Context, b *backupfile.Writer) error {
	var failed error // to write the file
	_, _, err := k.readRoads(ctx, 1, func(tile road.Tile, r Record) error {
		if r.Newer {
			return nil
		}
		if err := new(road.Map).Load(tile, r.Body); err != nil {
			return err // a restore would refuse it, and all else with it
		}
		if failed = b.Add(r.Subject, r.Sealed); failed != nil {
			return ErrStop
		}
		return nil
	})
	if err = cmp.Or(failed, err); err != nil {
		return fmt.Errorf("the backup of %s failed: %w", codec.Roads, err)
	}
	return nil
}

// road restores a tile. What the service has learned itself goes before the backup.
func (r *restore) road(ctx context.Context, rec Record) error {
	r.roads = append(r.roads, Write{rec.Subject, append([]byte(nil), rec.Sealed...), 0, true})
	if r.roadBytes += len(rec.Sealed); len(r.roads) == roadBatch || r.roadBytes >= roadBatchBytes {
		return r.storeRoads(ctx)
	}
	return nil
}

// storeRoads stores the tiles that were gathered, and lets this node's map have them
// at once. Other nodes read them with the next batch of theirs.
func (r *restore) storeRoads(ctx context.Context) error {
	conflicts, err := storeMany(ctx, r.k.engine, r.k.config.Patience.Store, codec.Roads, r.roads)
	if err != nil {
		return err
	}
	for range conflicts {
		r.count(codec.RoadPrefix, kept)
	}
	for range len(r.roads) - len(conflicts) {
		r.count(codec.RoadPrefix, taken)
	}
	r.roads, r.roadBytes = nil, 0
	select {
	case r.k.roadsRestored <- struct{}{}:
	default:
	}
	return nil
}

// Why something of the roads was refused.
const (
	refusedProfile  = "profile"
	refusedEvidence = "evidence"
)
