package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/vehicle"
)

type Config struct {
	store.Config
	// SyncInterval is the maximum time from an acknowledgement until the sync. A power cut, a
	// signal or a crash before it can lose the data.
	SyncInterval time.Duration
	MemoryBytes  int64 // MemoryBytes is for the block cache and the records that are not in tables yet.
	FS           vfs.FS

	plain bool // plain, for tests that read the files, means no compression and no automatic compactions.
}

const (
	DefaultMemoryBytes = 32 << 20
	defaultPartitions  = 1
	watchEvery         = time.Second
)

type Engine struct {
	config    Config
	dir       *dataDir
	mark      mark
	db        *pebble.DB
	Unclean   bool // the previous process did not close the engine
	forgotten access.Forgotten
	metrics   *engine.Metrics
	used      *prometheus.GaugeVec
	trouble   lograte.Warning

	hasher     *access.Hasher
	streams    map[string]*stream
	queue      *engine.Queue
	partitions []*partitionState
	put        func(vehicle.ID, *store.Answer) // set before following is closed
	unfolded   *store.Unfolded
	following  chan struct{} // closed once FollowAnswers has begun
	over       atomic.Bool
	reserve    reserve
	refusing   bool // telemetry is refused

	writesFailed  context.Context // ends at the first fatal error of Pebble
	failWrites    context.CancelCauseFunc
	cut           context.Context
	cutOff        context.CancelCauseFunc
	halted        context.Context // ends with writesFailed or cut; its cause is errWritesFailed or ErrClosed
	running       sync.WaitGroup
	reading       sync.RWMutex // Close locks it for good
	tablesFailing atomic.Bool  // Pebble cannot write the records in memory to tables
	opened        atomic.Bool
	tablesBackOff atomic.Bool // the next table is created after a pause
	unsynced      atomic.Bool // something was acknowledged that is not synced yet
	unremoved     sync.Map    // names of files that could not be removed
	viewDamaged   atomic.Bool // viewError has logged damage
	*engine.Failure
}

// Open does not change a directory of another user, program or version.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	c.Config = c.Config.WithDefaults()
	c.FS = cmp.Or[vfs.FS](c.FS, vfs.Default)
	c.MemoryBytes = cmp.Or(c.MemoryBytes, DefaultMemoryBytes)
	e := &Engine{
		config: c, queue: engine.NewQueue(waitingBytes, math.MaxInt, commitBytes),
		Failure: engine.NewFailure(), following: make(chan struct{}),
	}
	e.writesFailed, e.failWrites = context.WithCancelCause(context.Background())
	e.cut, e.cutOff = context.WithCancelCause(context.Background())
	halted, halt := context.WithCancelCause(e.cut)
	e.halted = halted
	context.AfterFunc(e.writesFailed, func() { halt(errWritesFailed) })
	e.reserve.fs, e.reserve.path = c.FS, c.FS.PathJoin(c.DataDir, reserveDir)
	fs := vfs.OnDiskFull(c.FS, func() { e.reserve.draw() })
	if e.dir, err = openDataDir(fs, c.DataDir, c.Partitions, c.Now().UnixNano()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	e.Unclean = e.dir.Ready && e.dir.Ends == nil
	e.hasher = access.NewHasher(e.dir.Key)
	if !e.dir.Ready { // a first start that was interrupted has stored nothing yet
		if err = c.FS.RemoveAll(e.dir.name(storeDir)); err != nil {
			return nil, e.dir.unusable("written", storeDir, err)
		}
	}
	parts, _ := c.FS.List(e.reserve.path)
	_ = e.reserve.fill(len(parts)) // after an error, measureDisk tries again
	for _, step := range []func() error{e.checkSpace, e.openDB, e.loadEnds} {
		if err = step(); err != nil {
			return nil, err
		}
	}
	if err = e.mark.open(e.dir); err != nil {
		return nil, e.dir.unusable("written", markFile, err)
	}
	e.noteEnds(e.ends())
	if err = e.dir.change(func(id *identity) { id.Ready, id.Ends = true, nil }); err != nil {
		return nil, err
	}
	if err = e.dir.saveCopy(); err != nil {
		return nil, err
	}
	if e.dir.fromCopy {
		e.config.Log.Warn("carstate.json was damaged or lost: it was written again from its copy")
	}
	e.metrics = engine.NewMetrics(c.Registry, e.dir.Partitions, func(int, time.Duration) bool { return true })
	e.used = promauto.With(c.Registry).NewGaugeVec(prometheus.GaugeOpts{
		Name: "carstate_data_dir_bytes",
		Help: "Disk space of what is in the data directory.",
	}, []string{"kind"})
	if err = store.LoadForgotten(ctx, e, &e.forgotten); err != nil {
		if disk := e.dir.probe(); disk != nil {
			err = fmt.Errorf("%w (%w)", e.dir.unusable("written", "", disk), err)
		}
		return nil, err
	}
	e.running.Go(func() { e.queue.Run(e.cut, e.metrics, e.storeChunks) })
	e.running.Go(e.watch)
	e.running.Go(e.measure)
	if c.SyncInterval > 0 {
		e.running.Go(e.syncNowAndThen)
	}
	return e, nil
}

func (e *Engine) openDB() error {
	var db *pebble.DB
	err := e.unblocked(context.Background(), func() (err error) {
		db, err = pebble.Open(e.dir.name(storeDir), e.options())
		e.opened.Store(err == nil)
		return err
	})
	if err == nil {
		e.db = db
		return nil
	}
	return e.openError(cmp.Or(context.Cause(e.writesFailed), err))
}

func (e *Engine) openError(err error) error {
	disk := e.dir.probe()
	switch {
	case disk != nil:
		return e.dir.unusable("written", "", disk)
	case errors.Is(err, syscall.ENOSPC):
		return e.dir.unusable("written", "", syscall.ENOSPC)
	case isNotDamage(err):
		return e.dir.unusable("read", storeDir, errors.New(access.OneLine(err)))
	case !e.dir.Ready:
		return fmt.Errorf("the store cannot be created in the data directory %s: %s", e.dir.path, access.OneLine(err))
	}
	return e.dir.damaged("the store cannot be opened: " + cause(err))
}

func (e *Engine) options() *pebble.Options {
	o := &pebble.Options{
		FS:                          &haltingFS{FS: e.dir.fs, e: e},
		Logger:                      logger{e},
		Cleaner:                     remover{},
		CacheSize:                   e.config.MemoryBytes,
		MemTableSize:                uint64(e.config.MemoryBytes) / memTables,
		MemTableStopWritesThreshold: memTables * 3 / 4,
		ErrorIfNotExists:            e.dir.Ready,
		L0StopWritesThreshold:       60,
		MaxOpenFiles:                256, // half of what a node reserves for everything but connections
		BytesPerSync:                1 << 20,
		FlushDelayDeleteRange:       10 * time.Second,
		FormatMajorVersion:          storeFormat,
		EventListener: &pebble.EventListener{
			DataCorruption:  func(pebble.DataCorruptionInfo) {}, // the reader gets an error
			BackgroundError: e.backgroundError,
			FlushEnd: func(i pebble.FlushInfo) {
				if i.Err == nil {
					e.tablesFailing.Store(false)
				}
			},
			CompactionEnd: func(i pebble.CompactionInfo) {
				if i.Err == nil && len(i.Output.Tables) > 0 { // some compactions write no table
					e.tablesFailing.Store(false)
				}
			},
		},
	}
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	// A damaged block must not make other kinds of records unreadable.
	o.Experimental.SpanPolicyFunc = func(key []byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{}, []byte{key[0] + 1}, nil
	}
	top := &o.Levels[0] // the levels below inherit
	top.BlockSize, top.IndexBlockSize, top.FilterPolicy = blockBytes, indexBytes, bloom.FilterPolicy(filterBits)
	if o.DisableAutomaticCompactions = e.config.plain; e.config.plain {
		o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	}
	return o
}

// The memtables take their memory from the block cache. Writes wait once all but one are full, so
// the cache keeps a quarter.
const memTables = 4

const (
	blockBytes = 8 << 10
	indexBytes = 256 << 10 // one index block per table
	filterBits = 10        // bits per key: one lookup in a hundred reads a block of a table that lacks the key
)

// Except after damage, Pebble itself retries, such as on a full disk.
func (e *Engine) backgroundError(err error) {
	if pebble.IsCorruptionError(err) {
		e.fail(e.dir.damaged(cause(err)))
		return
	}
	e.tablesFailing.Store(true)
	e.tablesBackOff.Store(true)
	if !e.opened.Load() { // Pebble would retry forever, and Open would not return
		e.failWrites(err)
	}
	e.trouble.Log(e.config.Log, "cannot write the tables of the store; will retry", "error", access.OneLine(err))
}

type logger struct{ e *Engine }

func (l logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) {
	l.e.trouble.Log(l.e.config.Log, "the store reports an error", "error", access.OneLine(fmt.Errorf(format, args...)))
}

// If Fatalf returned, Pebble would continue after a fatal error as if nothing had happened.
func (l logger) Fatalf(format string, args ...any) {
	l.e.halt(errors.New(access.OneLine(fmt.Errorf(format, args...))))
}

var errWritesFailed = errors.New("the store met a write error and stores nothing until it starts again")

var errTablesFailing = errors.New("the store cannot write its tables: the disk may be full")

// After a fatal error of Pebble, write blocks forever or panics. The error is errWritesFailed also
// if Pebble failed before, or during a call that returned nil.
func (e *Engine) safely(write func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.failWrites(fmt.Errorf("%v", p))
			err = errWritesFailed
		}
	}()
	if e.writesFailed.Err() == nil {
		err = write()
	}
	if err == nil && e.writesFailed.Err() != nil {
		err = errWritesFailed
	}
	return err
}

// unblocked returns even if a fatal error of Pebble blocks do forever.
func (e *Engine) unblocked(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- e.safely(do) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.writesFailed.Done():
		return errWritesFailed
	}
}

func (e *Engine) commit(b *pebble.Batch, stream string, last uint64) error {
	if e.config.SyncInterval > 0 {
		// If set before the commit, the flag could be cleared by a sync without the data.
		err := b.Commit(pebble.NoSync)
		e.unsynced.Store(true)
		return err
	}
	err := b.Commit(pebble.Sync)
	if err == nil {
		e.mark.note(stream, last)
	}
	return err
}

func (e *Engine) syncNowAndThen() {
	for range periodic.Every(e.cut, e.config.SyncInterval) {
		if !e.unsynced.Swap(false) {
			continue
		}
		ends := e.ends()
		if e.safely(func() error { return e.db.LogData(nil, pebble.Sync) }) == nil { // Writable reports a failure
			e.noteEnds(ends)
		}
	}
}

// After a write error, the engine answers queries. Once the disk accepts writes again, it fails,
// because only a restart helps.
func (e *Engine) watch() {
	for range periodic.NowAndEvery(e.cut, watchEvery) {
		if e.writesFailed.Err() != nil && e.checkSpace() == nil && e.dir.probe() == nil {
			e.fail(fmt.Errorf("the store stores nothing more after a write error, "+
				"and the disk takes writes again: restart carstate (%w)", context.Cause(e.writesFailed)))
			return
		}
	}
}

// After a fatal error of Pebble, or if a read takes longer than readersWithin, Close only releases
// the directory.
func (e *Engine) Close() error {
	e.Cut()
	if !e.awaitWork() {
		return e.dir.close()
	}
	ends := e.ends()
	delete(ends, codec.Telemetry) // not in carstate.json
	err := e.closeDB(func() error { return errors.Join(e.flush(), e.db.Close()) })
	e.mark.close()
	if err == nil {
		err = e.dir.change(func(id *identity) { id.Ends = ends })
	}
	return errors.Join(err, e.dir.close())
}

const flushWithin = 2 * time.Second

const closeWithin = flushWithin + 20*time.Second

func (e *Engine) flush() error {
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-time.After(flushWithin):
		e.config.Log.Info("the store was closed before everything was flushed: the next start takes a little longer")
	}
	return nil
}

const readersWithin = time.Second

func (e *Engine) awaitWork() bool {
	err := e.unblocked(context.Background(), func() error {
		e.running.Wait()
		for _, s := range e.streams {
			s.turn <- struct{}{}
			<-s.turn
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), readersWithin)
	defer cancel()
	return nil == cmp.Or(err, e.unblocked(ctx, func() error {
		e.reading.Lock()
		return nil
	}))
}

func (e *Engine) closeDB(end func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	err := e.unblocked(ctx, end)
	if errors.Is(err, context.DeadlineExceeded) { // Pebble may retry a table forever
		err = errors.New("the store did not close in time: the next start reads its log again")
	}
	return err
}

func (e *Engine) abandon() {
	e.Cut()
	e.awaitWork()
	if e.db != nil {
		_ = e.closeDB(e.db.Close)
	}
	e.mark.close()
	_ = e.dir.close()
}

func (e *Engine) Cut() { e.cutOff(engine.ErrClosed) }

func (e *Engine) Partitions() int { return e.dir.Partitions }

func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

func (e *Engine) Unfolded() *store.Unfolded { return e.unfolded }

func (e *Engine) Scarce() bool { return e.reserve.scarce.Load() }

func (e *Engine) Writable() error {
	err := e.Alive()
	switch {
	case err != nil:
		return err
	case e.writesFailed.Err() != nil:
		return errWritesFailed
	case e.reserve.scarce.Load():
		return store.ErrScarce
	case e.tablesFailing.Load():
		return errTablesFailing
	}
	return nil
}

// Fed returns the present time, because this process itself stores every record.
func (e *Engine) Fed() (records, answers time.Time, ok bool) {
	now := time.Now()
	return now, now, true
}

func (e *Engine) fail(err error) { e.Fail(e.config.Log, "the store failed", err) }
