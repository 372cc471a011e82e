package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"carstate/internal/road"
	"carstate/internal/seldom"
	"carstate/internal/store/backupfile"
	"carstate/internal/store/codec"
)

// ROADS holds the profiles of roads, one record a tile of the map, and what is known
// of roads is soft: all of it is learned again from cars. So a damaged record is left
// out and never ends a start, a write that failed is tried again with the next batch,
// and what nodes tell each other of the present may be lost. A tile's name is a place,
// and is in no log, error or metric.
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
	// A batch of tiles ends at roadBatch of them or at roadBatchBytes.
	roadBatch      = 250
	roadBatchBytes = 4 << 20
	// roadsRead and roadsReadBytes bound what is asked for at once.
	roadsRead      = 1000
	roadsReadBytes = 8 << 20
)

const roadPrefix = "road."

func roadSubject(t road.Tile) string { return roadPrefix + t.String() }

// sharedSubject is where a node tells the others what its cars show. It is in no
// stream.
func sharedSubject(node string) string { return "carstate.roads." + node }

// tileOfRoad takes the tile from a record's subject.
func tileOfRoad(subject string) (road.Tile, error) {
	return road.ParseTile(strings.TrimPrefix(subject, roadPrefix))
}

// roadKeeper keeps one node's map.
type roadKeeper struct {
	e    *Engine
	m    *road.Map
	next uint64 // sequence from which on ROADS was not read yet
	// mine are the partitions that this node folded a moment ago.
	mine map[int]bool
	// unsaved are tiles that are to be stored.
	unsaved map[road.Tile][]byte
	failing seldom.Warning
}

// KeepRoads keeps a node's map of roads until the context ends. First it takes in what
// is stored, and then calls loaded; from then on, what other nodes store and their cars
// show. With judges set, what this node's own cars show is sent to the others, and what
// changed on the tiles that are this node's is stored, every Patience.Roads and at the
// end.
func (e *Engine) KeepRoads(ctx context.Context, m *road.Map, judges bool, loaded func()) {
	k := &roadKeeper{e: e, m: m, next: 1, mine: make(map[int]bool), unsaved: make(map[road.Tile][]byte)}
	shares := !e.config.embedded() && judges
	if shares {
		m.Share()
	}
	if !e.config.embedded() {
		defer k.listen()()
	}
	k.loadPatiently(ctx)
	loaded()
	share, store := time.NewTicker(shareEvery), time.NewTicker(e.config.Patience.Roads)
	defer share.Stop()
	defer store.Stop()
	for {
		select {
		case <-ctx.Done():
			if judges {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
				defer cancel()
				maps.Copy(k.mine, e.folding()) // derive may have ended already
				k.store(last)
			}
			return
		case <-share.C:
			k.mine = e.folding()
			if shares {
				k.share()
			}
		case <-store.C:
			// Records that others stored are read first, so that a tile is not stored without them.
			if k.load(ctx) && judges {
				k.store(ctx)
			}
		case <-e.roadsRestored:
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
		case <-time.After(feedAgain):
		}
	}
}

// load takes in what was stored since the last time, and reports whether it could.
func (k *roadKeeper) load(ctx context.Context) bool {
	next, damaged, err := k.e.readRoads(ctx, k.next, func(tile road.Tile, r record) error {
		return k.m.Load(tile, r.body)
	})
	k.next = next
	if damaged > 0 {
		k.e.log.Warn("stored profiles of roads are damaged and left out: these roads are learned again", "records", damaged)
	}
	if err != nil && ctx.Err() == nil {
		k.failing.Log(k.e.log, "the profiles of roads cannot be read: trying again", "error", err)
	}
	return err == nil
}

// errStopReading ends readRoads.
type errStopReading struct{ error }

// readRoads calls do for the stored records of ROADS from a sequence on, and returns
// that of the next one. Records that are damaged, or that do refuses, are counted and
// left out; of do's errors an errStopReading ends it.
func (e *Engine) readRoads(ctx context.Context, from uint64, do func(road.Tile, record) error) (next uint64, damaged int, err error) {
	defer func() { e.metrics.roadsRefused[refusedProfile].Add(float64(damaged)) }()
	for next = from; ; {
		messages, end, err := e.directGet(ctx, Roads, struct {
			Seq   uint64 `json:"seq"`
			Batch int    `json:"batch"`
			Bytes int    `json:"max_bytes"`
		}{next, roadsRead, roadsReadBytes})
		if errors.Is(err, errNoRecords) {
			return next, damaged, nil
		}
		if err != nil {
			return next, damaged, err
		}
		for _, m := range messages {
			seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
			if err != nil {
				return next, damaged, errors.New("the engine's answer makes no sense")
			}
			next = seq + 1
			r := record{subject: m.Header.Get("Nats-Subject"), seq: seq, sealed: m.Data}
			tile, err := tileOfRoad(r.subject)
			if err == nil {
				r.body, err = codec.Unseal(r.subject, m.Data)
			}
			if err == nil {
				err = do(tile, r)
			}
			if stop, ok := errors.AsType[errStopReading](err); ok {
				return next, damaged, stop.error
			}
			if err != nil {
				damaged++
			}
		}
		if len(messages) == 0 || end.Get("Nats-Num-Pending") == "0" {
			return next, damaged, nil
		}
	}
}

// folding are the partitions that this node folds at present.
func (e *Engine) folding() map[int]bool {
	mine := make(map[int]bool)
	e.taken.Range(func(p, t any) bool {
		if !t.(*Partition).closed.Load() {
			mine[p.(int)] = true
		}
		return true
	})
	return mine
}

// writes reports whether a tile is this node's to store.
func (k *roadKeeper) writes(t road.Tile) bool {
	return k.e.config.embedded() || k.mine[codec.PartitionOf(t.String(), k.e.partitions)]
}

// store stores what changed on this node's tiles. What cannot be stored is kept for the
// next time.
func (k *roadKeeper) store(ctx context.Context) {
	maps.Copy(k.unsaved, k.m.Changed(k.writes))
	var batch []road.Tile
	var writes []write
	size := 0
	flush := func() bool {
		if len(writes) == 0 {
			return true
		}
		if _, err := k.e.storeBatch(ctx, Roads, writes); err != nil {
			k.failing.Log(k.e.log, "the profiles of roads cannot be stored: trying again later", "tiles", len(k.unsaved), "error", err)
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
		writes = append(writes, write{subject: subject, record: codec.Seal(subject, append([]byte{0}, packed...))})
		if size += len(packed); (len(batch) == roadBatch || size >= roadBatchBytes) && !flush() {
			return
		}
	}
	flush()
}

// share tells the other nodes what this node's cars showed. What comes while the
// cluster is out of reach is dropped: it would be old by the time it arrived.
func (k *roadKeeper) share() {
	subject := sharedSubject(k.e.node.id)
	for _, evidence := range k.m.Drain(shareBytes) {
		if !k.e.nc.IsConnected() {
			continue
		}
		if err := k.e.nc.Publish(subject, codec.Seal(subject, append([]byte{0}, evidence...))); err != nil {
			k.failing.Log(k.e.log, "other nodes cannot be told of the roads", "error", err)
		}
	}
}

// listen takes in what other nodes tell until the returned function is called.
func (k *roadKeeper) listen() (stop func()) {
	own := sharedSubject(k.e.node.id)
	sub, err := k.e.nc.Subscribe(sharedSubject("*"), func(m *nats.Msg) {
		if m.Subject == own {
			return
		}
		evidence, err := codec.Unseal(m.Subject, m.Data)
		if err == nil {
			err = k.m.Absorb(evidence)
		}
		if err != nil {
			k.e.metrics.roadsRefused[refusedEvidence].Inc()
		}
	})
	if err != nil { // the connection was closed for good, which ends the node
		k.e.log.Warn("what other nodes tell of the roads is not heard", "error", err)
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() } // of a connection that is closed it fails
}

// backUpRoads adds the profiles to a backup. Damaged ones are left out.
func (e *Engine) backUpRoads(ctx context.Context, b *backupfile.Writer) error {
	_, _, err := e.readRoads(ctx, 1, func(tile road.Tile, r record) error {
		if err := new(road.Map).Load(tile, r.body); err != nil {
			return err // a restore would refuse it, and all else with it
		}
		if err := b.Add(r.subject, r.sealed); err != nil {
			return errStopReading{err}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the backup of %s failed: %w", Roads, err)
	}
	return nil
}

// road restores a tile. What the service has learned itself goes before the backup.
func (r *restore) road(ctx context.Context, rec record) error {
	r.roads = append(r.roads, write{rec.subject, append([]byte(nil), rec.sealed...), 0, true})
	if r.roadBytes += len(rec.sealed); len(r.roads) == roadBatch || r.roadBytes >= roadBatchBytes {
		return r.storeRoads(ctx)
	}
	return nil
}

// storeRoads stores the tiles that were gathered, and lets this node's map have them
// at once. Other nodes read them with the next batch of theirs.
func (r *restore) storeRoads(ctx context.Context) error {
	conflicts, err := r.k.e.storeMany(ctx, Roads, r.roads)
	if err != nil {
		return err
	}
	for range conflicts {
		r.count(roadPrefix, kept)
	}
	for range len(r.roads) - len(conflicts) {
		r.count(roadPrefix, taken)
	}
	r.roads, r.roadBytes = nil, 0
	select {
	case r.k.e.roadsRestored <- struct{}{}:
	default:
	}
	return nil
}

// Why something of the roads was refused.
const (
	refusedProfile  = "profile"
	refusedEvidence = "evidence"
)
