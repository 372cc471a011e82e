package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/lograte"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/engine"
	"example.org/carstate/internal/vehicle"
)

// Config says where the engine stores its data and what resources it may use.
type Config struct {
	store.Config
	// SyncInterval relaxes durability: it is the maximum time from the acknowledgement of data
	// until the data is synced to disk. 0 means that data is synced before it is acknowledged.
	// Until the sync, Pebble may hold the data in the memory of this process. So the data can be
	// lost by a power cut, and also if a signal or a crash ends the process.
	SyncInterval time.Duration
	// MemoryBytes is the maximum memory of the store, in bytes, for the block cache and the records
	// that are not in tables yet. 0 means [DefaultMemoryBytes].
	MemoryBytes int64
	// FS is the file system of the data directory. If nil, the file system of the machine is used.
	FS vfs.FS

	// plain is for tests that read the files: no compression and no automatic compactions.
	plain bool
}

// DefaultMemoryBytes is the default of Config.MemoryBytes. It suits a machine with 1 GB of memory.
const DefaultMemoryBytes = 128 << 20

const (
	defaultPartitions = 1
	// watchEvery is the interval at which the engine probes the disk after a fatal write error, and
	// at which it measures how much stored telemetry is not folded.
	watchEvery = time.Second
)

// Engine is an open store. [Open] returns one, and [Engine.Close] ends it. It implements
// [store.Engine].
type Engine struct {
	config    Config
	dir       *dataDir
	mark      mark
	db        *pebble.DB
	unclean   bool // the previous process did not close the engine in an orderly way
	log       *slog.Logger
	now       func() time.Time
	forgotten access.Forgotten
	metrics   *engine.Metrics
	used      prometheus.Gauge
	trouble   lograte.Warning

	hasher     *access.Hasher
	streams    map[string]*stream
	queue      *engine.Queue // of samples
	partitions []*partitionState
	put        func(vehicle.ID, *store.Answer) // set before following is closed
	unfolded   *store.Unfolded
	following  chan struct{} // closed once FollowAnswers has begun
	over       atomic.Bool   // the backlog is over its limit
	scarce     atomic.Bool   // the disk has less free space than reservedBytes
	oldest     atomic.Int64  // age of the oldest sample that is not folded, ns

	writesFailed context.Context // ends at the first fatal error of Pebble
	failWrites   context.CancelCauseFunc
	cut          context.Context // ends when Cut is called
	cutOff       context.CancelFunc
	halted       context.Context    // ends with writesFailed or cut; its cause is errWritesFailed or errClosed
	stop         context.CancelFunc // ends the background goroutines
	running      sync.WaitGroup
	readers      atomic.Int64 // how many goroutines read the database
	// tablesFailing is set while Pebble cannot write the records in memory to tables.
	tablesFailing atomic.Bool
	opened        atomic.Bool // Pebble has opened the database
	tablesBackOff atomic.Bool // see haltingFS
	unsynced      atomic.Bool // something was acknowledged that is not synced yet
	viewDamaged   atomic.Bool // viewError has logged damage
	*engine.Failure
}

// Open opens the store in the data directory, and creates the store at the first start. A data
// directory that belongs to another user, program or version of carstate stays unchanged.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	c.Config = c.Config.WithDefaults()
	c.FS = cmp.Or[vfs.FS](c.FS, vfs.Default)
	c.MemoryBytes = cmp.Or(c.MemoryBytes, DefaultMemoryBytes)
	e := &Engine{
		config: c, log: c.Log, now: c.Now,
		queue:   engine.NewQueue(waitingBytes, math.MaxInt, commitBytes),
		Failure: engine.NewFailure(), following: make(chan struct{}),
	}
	e.writesFailed, e.failWrites = context.WithCancelCause(context.Background())
	e.cut, e.cutOff = context.WithCancel(context.Background())
	halted, halt := context.WithCancelCause(context.Background())
	e.halted = halted
	context.AfterFunc(e.writesFailed, func() { halt(errWritesFailed) })
	context.AfterFunc(e.cut, func() { halt(errClosed) })
	if e.dir, err = openDataDir(c.FS, c.DataDir, c.Partitions, c.Now().UnixNano()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	e.unclean = e.dir.Ready && e.dir.Ends == nil
	e.hasher = access.NewHasher(e.dir.Key)
	if !e.dir.Ready { // a first start that was interrupted has stored nothing yet
		if err = c.FS.RemoveAll(e.dir.name(storeDir)); err != nil {
			return nil, e.dir.unusable("written", storeDir, err)
		}
	}
	if err = e.checkSpace(); err != nil {
		return nil, err
	}
	if err = e.openDB(); err != nil {
		return nil, err
	}
	if err = e.loadEnds(); err != nil {
		return nil, err
	}
	if err = e.dir.compareEnds(e.ends(), e.totals()); err != nil {
		return nil, err
	}
	if err = e.mark.open(e.dir); err != nil {
		return nil, e.dir.unusable("written", markFile, err)
	}
	e.noteEnds(e.totals())
	if err = e.dir.change(func(id *identity) { id.Ready, id.Ends = true, nil }); err != nil {
		return nil, err
	}
	if err = e.dir.saveCopy(); err != nil {
		return nil, err
	}
	if e.dir.fromCopy {
		e.log.Warn("carstate.json was damaged or lost: it was written again from its copy")
	}
	e.metrics = engine.NewMetrics(c.Registry, e.backlogAge)
	e.used = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "carstate_store_bytes",
		Help: "Bytes of the store's files.",
	})
	c.Registry.MustRegister(e.used)
	var background context.Context
	background, e.stop = context.WithCancel(context.Background())
	if err = store.LoadForgotten(ctx, e.own(), &e.forgotten); err != nil {
		if disk := e.dir.probe(); disk != nil {
			err = fmt.Errorf("%w (%w)", e.dir.unusable("written", "", disk), err)
		}
		return nil, err
	}
	e.running.Go(func() { e.queue.Run(background, e.metrics, e.storeChunks) })
	e.running.Go(func() { e.watch(background) })
	e.running.Go(func() { e.measure(background) })
	if c.SyncInterval > 0 {
		e.running.Go(func() { e.syncNowAndThen(background) })
	}
	return e, nil
}

// Unclean reports whether the process that used the data directory before did not close the engine.
func (e *Engine) Unclean() bool { return e.unclean }

// openDB opens the Pebble database.
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
	return e.dir.damaged("the store cannot be opened: " + access.OneLine(err))
}

// options returns the options of the database. With Pebble's defaults, writes stall for more than
// half a second under load, because one memtable of 4 MB and twelve tables on the first level are
// too few.
func (e *Engine) options() *pebble.Options {
	fs := &haltingFS{
		FS: e.config.FS, failWrites: e.failWrites, dir: e.dir, backOff: &e.tablesBackOff, cut: e.cut,
	}
	o := &pebble.Options{
		FS:                          fs,
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
	// Each new table holds only one kind of record, so that a damaged block does not make other
	// kinds of records unreadable. For example, a start does not need AUDIT.
	o.Experimental.SpanPolicyFunc = func(key []byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{}, []byte{key[0] + 1}, nil
	}
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

// memTables is the number of memtables into which the store's memory is divided. When all but one
// are full, writes wait, so a quarter of the memory remains for the block cache.
const memTables = 4

// Sizes of the blocks of the tables on disk. Other sizes than Pebble's defaults, and a key of its
// own for the answers of each vehicle, shortened a start with a million vehicles from 3.2 s to 1.3
// s.
const (
	blockBytes  = 8 << 10
	leastBlocks = 128       // blocks that the cache holds at least
	indexBytes  = 256 << 10 // one index block per table
	filterBits  = 10        // bits per key: one lookup in a hundred reads a block of a table that lacks the key
)

// maxOpenFiles is half of the file descriptors that a node reserves for everything but connections.
const maxOpenFiles = 256

// backgroundError handles an error of a flush or a compaction. If the error means damage, the
// engine fails. After any other error, such as a full disk, Pebble itself retries.
func (e *Engine) backgroundError(err error) {
	if pebble.IsCorruptionError(err) {
		e.fail(e.dir.damaged(access.OneLine(err)))
		return
	}
	e.tablesFailing.Store(true)
	e.tablesBackOff.Store(true)
	if !e.opened.Load() { // Pebble would retry forever, and Open would not return
		e.failWrites(err)
	}
	e.trouble.Log(e.log, "cannot write the tables of the store; will retry", "error", access.OneLine(err))
}

// logger forwards Pebble's errors to the log, at a limited rate. It drops Pebble's informational
// messages, because an operator would need knowledge of Pebble to understand them.
type logger struct{ e *Engine }

func (l logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) {
	l.e.trouble.Log(l.e.log, "the store reports an error", "error", access.OneLine(fmt.Errorf(format, args...)))
}

// Fatalf makes all later writes fail, and then blocks the calling goroutine forever. Pebble calls
// Fatalf after a fatal error. If Fatalf returned, Pebble would continue as if nothing had happened.
// Only a restart of the process helps.
func (l logger) Fatalf(format string, args ...any) {
	l.e.failWrites(errors.New(access.OneLine(fmt.Errorf(format, args...))))
	select {}
}

// errWritesFailed means that Pebble has met a fatal error. Nothing is stored until a restart.
var errWritesFailed = errors.New("the store met a write error and stores nothing until it starts again")

// errTablesFailing means that Pebble cannot write its tables, for example because the disk is
// nearly full. Records can still be written to the write-ahead log.
var errTablesFailing = errors.New("the store cannot write its tables: the disk may be full")

var errClosed = engine.ErrClosed

// safely calls write, a function that writes to the database, and returns the error of write. After
// a fatal error of Pebble, write either blocks forever or panics. If write panics, safely returns
// errWritesFailed. It also does so if Pebble met a fatal error before the call, or during a call of
// write that returned nil.
func (e *Engine) safely(write func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.failWrites(fmt.Errorf("%v", p))
			err = errWritesFailed
		}
	}()
	if e.writesFailed.Err() != nil {
		return errWritesFailed
	}
	if err = write(); err != nil {
		return err
	}
	if e.writesFailed.Err() != nil {
		return errWritesFailed
	}
	return nil
}

// unblocked calls do, a function that writes to the database, on a separate goroutine, and returns
// its error as safely does. After a fatal error of Pebble, which may block that goroutine forever,
// it returns errWritesFailed at once. If ctx ends first, it returns the error of ctx.
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

// commit stores a batch whose data is acknowledged afterwards. If SyncInterval is 0, it waits until
// the data is synced to disk. Otherwise it does not wait, and syncNowAndThen syncs the data later.
func (e *Engine) commit(b *pebble.Batch) error {
	if e.config.SyncInterval == 0 {
		return b.Commit(pebble.Sync)
	}
	// Set the flag only after the commit. If it were set before, a sync between these two steps
	// would clear the flag without including the data.
	err := b.Commit(pebble.NoSync)
	e.unsynced.Store(true)
	return err
}

func (e *Engine) syncNowAndThen(ctx context.Context) {
	for range periodic.Every(ctx, e.config.SyncInterval) {
		if !e.unsynced.Swap(false) {
			continue
		}
		ends := e.totals()
		if e.safely(func() error { return e.db.LogData(nil, pebble.Sync) }) == nil { // Writable reports a failure
			e.noteEnds(ends)
		}
	}
}

// watch probes the disk after a fatal error of Pebble. Once it accepts writes again, the engine
// fails, because only a restart helps. Until then, the process can still answer queries.
func (e *Engine) watch(ctx context.Context) {
	for range periodic.NowAndEvery(ctx, watchEvery) {
		if e.writesFailed.Err() != nil && e.checkSpace() == nil && e.dir.probe() == nil {
			e.fail(fmt.Errorf("the store stores nothing more after a write error, "+
				"and the disk takes writes again: restart carstate (%w)", context.Cause(e.writesFailed)))
			return
		}
	}
}

// Close stops the goroutines, then flushes and closes the database, and then releases the
// directory. Samples whose Append has not returned are not acknowledged. After a fatal error of
// Pebble, or if a read takes longer than readersWithin, Close does not close the database but only
// releases the directory; the next start then treats the engine as not closed (see Unclean).
func (e *Engine) Close() error {
	e.Cut()
	e.stop()
	if !e.awaitRunning() || !e.awaitReaders() {
		return errors.Join(e.dir.close(), e.Alive())
	}
	ends := e.ends()
	err := e.closeDB(func() error { return errors.Join(e.flush(), e.db.Close()) })
	e.mark.close()
	if err == nil {
		err = e.dir.change(func(id *identity) { id.Ends = ends })
	}
	return errors.Join(err, e.dir.close())
}

// flushWithin limits the flush. The next start reads the rest of the records from the log.
const flushWithin = 2 * time.Second

// closeWithin limits the closing of the database, with the flush. A node that shuts down has a
// shorter limit of its own (internal/node).
const closeWithin = flushWithin + 20*time.Second

// flush writes all records to tables, as far as it can within flushWithin.
func (e *Engine) flush() error {
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-time.After(flushWithin):
		e.log.Info("the store was closed before everything was flushed: the next start takes a little longer")
	}
	return nil
}

// awaitRunning waits until the background goroutines and the changes of streams have ended. After
// Cut, no further change begins. After a fatal error of Pebble, it returns false at once.
func (e *Engine) awaitRunning() bool {
	return nil == e.unblocked(context.Background(), func() error {
		e.running.Wait()
		for _, s := range e.streams {
			s.turn <- struct{}{}
			<-s.turn
		}
		return nil
	})
}

// closeDB calls end, which closes the database. After a fatal error of Pebble, end may never
// return; closeDB then returns an error, as after closeWithin.
func (e *Engine) closeDB(end func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	err := e.unblocked(ctx, end)
	if errors.Is(err, context.DeadlineExceeded) { // Pebble may retry a table forever
		err = errors.New("the store did not close in time: the next start reads its log again")
	}
	return err
}

// abandon undoes a failed Open.
func (e *Engine) abandon() {
	if e.stop != nil {
		e.stop()
		e.awaitRunning()
	}
	if e.db != nil {
		_ = e.closeDB(e.db.Close) // the first error is reported
	}
	e.mark.close()
	_ = e.dir.close()
}

func (e *Engine) Cut() { e.cutOff() }

func (e *Engine) Partitions() int { return e.dir.Partitions }

func (e *Engine) Forgotten() *access.Forgotten { return &e.forgotten }

func (e *Engine) Unfolded() *store.Unfolded { return e.unfolded }

func (e *Engine) Scarce() bool { return e.scarce.Load() }

func (e *Engine) Writable() error {
	if err := e.Alive(); err != nil {
		return err
	}
	if e.writesFailed.Err() != nil {
		return errWritesFailed
	}
	if e.tablesFailing.Load() {
		return errTablesFailing
	}
	return nil
}

// Fed implements [store.Engine]. It returns the present time, because this process itself stores
// every record.
func (e *Engine) Fed() (records, answers time.Time, ok bool) {
	now := time.Now()
	return now, now, true
}

// fail logs err, the reason why only a restart can help, and sends it to the channel of Failed.
func (e *Engine) fail(err error) { e.Fail(e.log, "the store failed", err) }
