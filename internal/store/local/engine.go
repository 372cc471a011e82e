package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"carstate/internal/access"
	"carstate/internal/lograte"
	"carstate/internal/periodic"
	"carstate/internal/store"
	"carstate/internal/vehicle"
)

// Config says where the engine keeps everything and what it may use.
type Config struct {
	store.Config
	// SyncInterval relaxes durability: data reaches the disk this long after it was
	// acknowledged. 0 means before.
	SyncInterval time.Duration
	// MemoryBytes bounds what the store keeps in memory: blocks that were read and records
	// that are not in tables yet. 0 means [DefaultMemoryBytes].
	MemoryBytes int64
	// Answers gets what is known of every vehicle while the engine opens, and all that
	// FollowStates brings goes on from there. Optional.
	Answers Answers
	// FS is where the data directory lies; nil: the machine's file system.
	FS vfs.FS

	plain bool // for tests that read the files: no compression, and no compaction that nobody asked for
}

// DefaultMemoryBytes suits a machine of 1 GB.
const DefaultMemoryBytes = 128 << 20

const (
	defaultPartitions = 1
	// watchEvery is how often the disk is looked at after a write error, and the backlog
	// without one.
	watchEvery = time.Second
)

// Engine is an open store. Make one with [Open], end it with [Engine.Close]. It implements
// [store.Engine].
type Engine struct {
	config    Config
	dir       *dataDir
	db        *pebble.DB
	node      *store.NodeName
	log       *slog.Logger
	now       func() time.Time
	forgotten access.Forgotten
	metrics   *metrics
	trouble   lograte.Warning

	hashers    sync.Pool
	streams    map[string]*stream
	telemetry  telemetryWriter
	partitions []*partitionState
	putMu      sync.RWMutex // held to change put, and by FollowStates while it reads
	put        func(vehicle.ID, vehicle.State)
	following  chan struct{} // closed once FollowStates has begun; Take waits for it if Answers are set
	followOnce sync.Once
	over       atomic.Bool  // the backlog is too large
	oldest     atomic.Int64 // age of the oldest sample that is not folded, ns
	compactMu  sync.Mutex   // guards what follows
	removed    [][]byte     // keys removed since the last compaction
	compacted  bool         // all was compacted since the start

	jammed  context.Context // ends with the first fatal error of Pebble
	jam     context.CancelCauseFunc
	cut     context.Context // ends with Cut
	cutOff  context.CancelFunc
	stop    context.CancelFunc // ends what runs in the background
	running sync.WaitGroup
	readers atomic.Int64 // of the database
	// tableless is set while the tables of what is in memory cannot be written, and noTables
	// holds the first reason.
	tableless atomic.Bool
	noTables  chan error
	unsynced  atomic.Bool // something was acknowledged that no sync has brought to the disk
	failed    chan error
	failure   atomic.Pointer[error]
}

// Open opens the store in the data directory, and makes it at the first start. On an error
// nothing is left running, and a data directory that could not be used was not changed.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	c.Config = c.Config.WithDefaults()
	c.FS = privateFS{cmp.Or[vfs.FS](c.FS, vfs.Default)}
	c.MemoryBytes = cmp.Or(c.MemoryBytes, DefaultMemoryBytes)
	e := &Engine{config: c, log: c.Log, now: c.Now, failed: make(chan error, 1), noTables: make(chan error, 1), following: make(chan struct{})}
	e.jammed, e.jam = context.WithCancelCause(context.Background())
	e.cut, e.cutOff = context.WithCancel(context.Background())
	if e.dir, err = openDataDir(c.FS, c.DataDir, c.Partitions, c.Now().UnixNano()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	e.hashers.New = func() any { return newHasher(e.dir.Key) }
	if !e.dir.Ready { // a first start that was cut off stored nothing yet
		if err = c.FS.RemoveAll(e.dir.name(storeDir)); err != nil {
			return nil, e.dir.unusable("written", storeDir, err)
		}
	}
	if err = e.room(); err != nil {
		return nil, err
	}
	if err = e.openDB(); err != nil {
		return nil, err
	}
	if err = e.loadEnds(); err != nil {
		return nil, err
	}
	if err = e.dir.compareEnds(e.ends()); err != nil {
		return nil, err
	}
	if err = e.dir.change(func(id *identity) { id.Ready, id.Ends = true, nil }); err != nil {
		return nil, err
	}
	e.metrics = newMetrics(c.Registry, e)
	var background context.Context
	background, e.stop = context.WithCancel(context.Background())
	for _, s := range e.streams {
		e.running.Go(func() { s.run(background) })
	}
	if err = store.LoadForgotten(ctx, e, &e.forgotten); err != nil {
		return nil, e.blame(err)
	}
	if c.Answers != nil {
		if err = e.loadAnswers(ctx, c.Answers); err != nil {
			return nil, err
		}
	}
	dir := c.DataDir
	if !onDisk(c.FS) {
		dir = "" // the node's name is a file of the machine
	}
	e.node = store.OpenNodeName(dir, c.Log)
	e.running.Go(func() { e.telemetry.run(background) })
	e.running.Go(func() { e.watch(background) })
	e.running.Go(func() { e.measure(background) })
	if c.SyncInterval > 0 {
		e.running.Go(func() { e.syncNowAndThen(background) })
	}
	return e, nil
}

// openDB opens Pebble, which may meet a fatal error on the way.
func (e *Engine) openDB() error {
	type result struct {
		db  *pebble.DB
		err error
	}
	opened := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("%v", p)
			}
			opened <- r
		}()
		r.db, r.err = pebble.Open(e.dir.name(storeDir), e.options())
	}()
	select {
	case r := <-opened:
		e.db = r.db
		return e.unopened(r.err)
	case <-e.jammed.Done():
		return e.unopened(context.Cause(e.jammed))
	case err := <-e.noTables: // Pebble would try for ever
		return e.unopened(err)
	}
}

// unopened says in one line why the store cannot be opened.
func (e *Engine) unopened(err error) error {
	if err == nil {
		return nil
	}
	disk := e.dir.probe()
	switch {
	case disk != nil:
		return e.dir.unusable("written", "", disk)
	case errors.Is(err, syscall.ENOSPC):
		return e.dir.unusable("written", "", syscall.ENOSPC)
	case passing(err):
		return e.dir.unusable("read", storeDir, errors.New(access.OneLine(err)))
	case !e.dir.Ready:
		return fmt.Errorf("the store cannot be made in the data directory %s: %s", e.dir.path, access.OneLine(err))
	}
	return e.dir.damaged("the store cannot be opened: " + access.OneLine(err))
}

// options are those of the database. Its defaults stall for more than half a second under
// load, because one table of 4 MB in memory and twelve on the first level do not suffice.
func (e *Engine) options() *pebble.Options {
	o := &pebble.Options{
		FS:                          &haltingFS{FS: e.config.FS, jam: e.jam, dir: e.dir, cut: e.cut},
		Logger:                      logger{e},
		CacheSize:                   e.config.MemoryBytes,
		MemTableSize:                uint64(e.config.MemoryBytes) / memTables,
		MemTableStopWritesThreshold: memTables * 3 / 4,
		ErrorIfNotExists:            e.dir.Ready,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       60,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                maxOpenFiles,
		BytesPerSync:                1 << 20,
		FlushDelayDeleteRange:       10 * time.Second,
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		EventListener: &pebble.EventListener{
			DataCorruption:  func(pebble.DataCorruptionInfo) {}, // the reader gets an error
			BackgroundError: e.backgroundError,
			FlushEnd: func(i pebble.FlushInfo) {
				if i.Err == nil {
					e.tableless.Store(false)
				}
			},
		},
	}
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	for i := range o.Levels {
		o.Levels[i].BlockSize = int(min(blockBytes, e.config.MemoryBytes/leastBlocks))
		o.Levels[i].IndexBlockSize = indexBytes
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(filterBits)
	}
	if o.DisableAutomaticCompactions = e.config.plain; e.config.plain {
		o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	}
	return o
}

// memTables is how many tables in memory would take all of the store's memory. There are at
// most three quarters of them. Pebble takes their bytes from the cache of blocks.
const memTables = 4

// Sizes of tables on disk. With them, and with the answers of a state under a key of their
// own, a start with a million vehicles took 1.3 s in place of 3.2 s with Pebble's own sizes.
const (
	blockBytes  = 16 << 10
	leastBlocks = 128       // that there is memory for
	indexBytes  = 256 << 10 // one block a table
	filterBits  = 10        // a key: one look-up of a hundred in a table without the key reads a block
)

// maxOpenFiles leaves a node half of the descriptors that it keeps beside connections.
const maxOpenFiles = 256

// backgroundError takes what a flush or a compaction met. A disk that is full is tried
// again by Pebble.
func (e *Engine) backgroundError(err error) {
	if pebble.IsCorruptionError(err) {
		e.fail(e.dir.damaged(access.OneLine(err)))
		return
	}
	e.tableless.Store(true)
	select {
	case e.noTables <- err:
	default:
	}
	e.trouble.Log(e.log, "the store cannot write its tables: trying again", "error", access.OneLine(err))
}

// logger passes what Pebble says on. Its words are for those who know Pebble.
type logger struct{ e *Engine }

func (l logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) {
	l.e.trouble.Log(l.e.log, "the store has trouble", "error", access.OneLine(fmt.Errorf(format, args...)))
}

// Fatalf must not return: Pebble would go on as if nothing had happened. The goroutine
// never ends; nothing but a restart helps.
func (l logger) Fatalf(format string, args ...any) {
	l.e.jam(errors.New(access.OneLine(fmt.Errorf(format, args...))))
	select {}
}

// errJammed means that the store has met a fatal error.
var errJammed = errors.New("the store met a write error and stores nothing until it starts again")

// errTableless means that the disk is nearly full: its log still takes records.
var errTableless = errors.New("the store cannot write its tables: the disk may be full")

var errClosed = errors.New("the store is closed")

// safely runs a write. A fatal error of Pebble either blocks it for ever, or makes it panic.
func (e *Engine) safely(write func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.jam(fmt.Errorf("%v", p))
			err = errJammed
		}
	}()
	if e.jammed.Err() != nil {
		return errJammed
	}
	if err = write(); err != nil {
		return err
	}
	if e.jammed.Err() != nil {
		return errJammed
	}
	return nil
}

// sync says whether a write waits for the disk.
func (e *Engine) sync() *pebble.WriteOptions {
	if e.config.SyncInterval > 0 {
		e.unsynced.Store(true)
		return pebble.NoSync
	}
	return pebble.Sync
}

// syncNowAndThen brings to the disk what was acknowledged before.
func (e *Engine) syncNowAndThen(ctx context.Context) {
	for range periodic.Every(ctx, e.config.SyncInterval) {
		if e.unsynced.Swap(false) {
			_ = e.safely(func() error { return e.db.LogData(nil, pebble.Sync) }) // Writable tells
		}
	}
}

// watch ends the process's hope once the store has met a write error and the disk takes
// writes again: only a new start helps then. Until then queries can be answered.
func (e *Engine) watch(ctx context.Context) {
	for range periodic.NowAndEvery(ctx, watchEvery) {
		if e.jammed.Err() != nil && e.room() == nil && e.dir.probe() == nil {
			e.fail(fmt.Errorf("the store stores nothing more after a write error, and the disk takes writes again: restart carstate (%w)", context.Cause(e.jammed)))
			return
		}
	}
}

// Close ends everything in order. Samples whose Append has not returned are not
// acknowledged.
func (e *Engine) Close() error {
	e.Cut()
	e.stop()
	e.node.Close()
	if !e.awaitRunning() || !e.awaitReaders() {
		return errors.Join(e.dir.close(), e.Alive())
	}
	ends := e.ends()
	err := e.closeDB(func() error { return errors.Join(e.flush(), e.db.Close()) })
	if err == nil {
		err = e.dir.change(func(id *identity) { id.Ends = ends })
	}
	return errors.Join(err, e.dir.close())
}

// flushWithin is how long an end waits for what a start would have to read again from the
// log.
const flushWithin = 2 * time.Second

// closeWithin bounds an end, flush included.
const closeWithin = flushWithin + time.Second

// flush brings all to tables, if the disk takes it.
func (e *Engine) flush() error {
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-time.After(flushWithin):
		e.log.Info("the store is closed before all of it is in tables: the next start takes a little longer")
	}
	return nil
}

// awaitRunning waits for what runs in the background. It returns false after a fatal error
// of Pebble: whatever waits for that waits for ever.
func (e *Engine) awaitRunning() bool {
	ended := make(chan struct{})
	go func() {
		e.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-e.jammed.Done():
	}
	return e.jammed.Err() == nil
}

// closeDB closes the database, which may meet a fatal error on the way.
func (e *Engine) closeDB(end func() error) error {
	closed := make(chan error, 1)
	go func() { closed <- e.safely(end) }()
	select {
	case err := <-closed:
		return err
	case <-e.jammed.Done():
		return errJammed
	case <-time.After(closeWithin): // it may try for ever to write a table
		return errors.New("the store did not close in time: the next start reads its log again")
	}
}

// abandon ends what an Open that failed has begun.
func (e *Engine) abandon() {
	if e.stop != nil {
		e.stop()
		e.awaitRunning()
	}
	if e.db != nil {
		_ = e.closeDB(e.db.Close) // the error that led here is reported
	}
	_ = e.dir.close()
}

// Cut implements [store.Engine].
func (e *Engine) Cut() { e.cutOff() }

// Partitions implements [store.Engine].
func (e *Engine) Partitions() int { return e.dir.Partitions }

// Forgotten implements [store.Engine].
func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

// NodeID implements [store.Engine].
func (e *Engine) NodeID() string { return e.node.ID }

// Failed implements [store.Engine].
func (e *Engine) Failed() <-chan error { return e.failed }

// Alive implements [store.Engine].
func (e *Engine) Alive() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Writable implements [store.Engine].
func (e *Engine) Writable() error {
	if err := e.Alive(); err != nil {
		return err
	}
	if e.jammed.Err() != nil {
		return errJammed
	}
	if e.tableless.Load() {
		return errTableless
	}
	return nil
}

// Fed implements [store.Engine]: the copies of the process that stores everything are never
// old.
func (e *Engine) Fed() (time.Time, bool) { return time.Now(), true }

// fail reports the first failure of which only a restart is the cure.
func (e *Engine) fail(err error) {
	if e.failure.CompareAndSwap(nil, &err) {
		e.log.Error("the store failed", "error", err)
		e.failed <- err
	}
}

// blame returns why something could not be stored: the disk is asked.
func (e *Engine) blame(err error) error {
	if disk := e.dir.probe(); disk != nil {
		return fmt.Errorf("%w (%w)", e.dir.unusable("written", "", disk), err)
	}
	return err
}
