package store

import (
	"context"
	"errors"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Record is the newest record of a subject in a stream.
type Record struct {
	Subject string
	// Body is the record without its seal. A function that is called with a record may
	// use Body and Sealed until it returns.
	Body []byte
	// Seq is the record's place in its stream. 0 means that there is no record.
	Seq uint64
	// Sealed is the record as it is stored.
	Sealed []byte
	// Newer is set if a newer version wrote the record: this one cannot read it, and there is no
	// Body. A feed, ScanFrom and Before bring such records. All other calls return an error, for
	// which [codec.IsNewer] holds, so that no older record takes the place of a newer one.
	Newer bool
	// Stored is when the record was stored. Only Before tells that, of a record that is Newer.
	Stored time.Time
}

// Write is a record that is to be stored in place of its subject's last one.
type Write struct {
	Subject string
	Record  []byte // sealed
	// Expect is the sequence of the subject's present record, 0 for none, if Expected
	// is set. Of the writes of one batch only the last may carry one.
	Expect   uint64
	Expected bool
}

// End is where a stream ends.
type End struct {
	Last uint64 // sequence of the newest record; 0: there never was one
	Made int64  // when the stream was made, Unix ns: sequences of another making differ
}

// Records is the part of an engine that keeps the last record of each subject. The
// streams and their subjects are those of package codec.
type Records interface {
	// Last returns the last record of a subject as it is at present.
	Last(ctx context.Context, stream, subject string) (Record, error)
	// Store stores all writes or none, and returns the sequence of the last. When it
	// returns nil, they are on disk. [ErrConflict] means that an expectation failed and
	// nothing was stored. After [context.DeadlineExceeded], while ctx has not ended, the
	// engine did not answer: nobody knows whether the writes were stored.
	Store(ctx context.Context, stream string, writes []Write) (seq uint64, err error)
	// Scan calls do with the last record of each subject that matches one of the
	// patterns, in no order. Of a subject that changes meanwhile, do gets the newer
	// record as well, or instead. An error of do ends it.
	Scan(ctx context.Context, stream string, patterns []string, do func(Record) error) error
	// ScanFrom calls do with the records from a sequence on, and returns the sequence
	// after the last. Records that are damaged, or that do refuses, are left out and
	// counted; an error that wraps [ErrStop] ends it.
	ScanFrom(ctx context.Context, stream string, from uint64, do func(Record) error) (next uint64, damaged int, err error)
	// Before returns at most limit records of a stream that keeps all of them, from
	// before a sequence (0: the end), newest first, and the before of the next page, 0
	// if there is none.
	Before(ctx context.Context, stream string, before uint64, limit int) (records []Record, older uint64, err error)
	// Remove removes records that were not replaced meanwhile, by Subject and Seq.
	Remove(ctx context.Context, stream string, records []Record) error
	// End tells where a stream ends.
	End(ctx context.Context, stream string) (End, error)
	// Feed follows a stream: apply is called with the last record of each subject and
	// then with each new one, in order. An error of apply means that the store cannot be
	// trusted. It starts with [Feed.Run].
	Feed(stream string, apply func(Record) error) Feed
}

// Feed follows a stream.
type Feed interface {
	// Run follows until the context ends, which is no error. It calls caughtUp once,
	// after every record that there was at the start.
	Run(ctx context.Context, caughtUp func()) error
	// Wait returns once apply has had the record of a sequence.
	Wait(ctx context.Context, seq uint64) error
}

// Engine keeps telemetry, states and records. When a call that stores something returns
// nil, it is on disk, unless the operator chose otherwise.
type Engine interface {
	Records

	// Append stores samples and returns nil once all of them are on disk. Samples of one
	// vehicle keep their order. They belong to the engine afterwards. After any error
	// nothing may be acknowledged; some of the samples may be stored all the same, which
	// does no harm, because the same sample twice changes nothing. See [ErrOverloaded]
	// and [ErrBacklog].
	Append(ctx context.Context, samples []vehicle.Sample) error
	// Recent reads the retained samples of a vehicle until it has all of them, or at
	// least most, or the context ends, which is no error.
	Recent(ctx context.Context, id vehicle.ID, most int) (Recent, error)
	// Trim removes telemetry that is both folded and older than the retention, until
	// the context ends. Nodes that derive run it.
	Trim(ctx context.Context)

	// Partitions is the number of partitions, fixed at the first start.
	Partitions() int
	// Take makes owner the one who folds partition p and fences out whoever had it. It
	// returns [ErrHeld] if free(holder) is false.
	Take(ctx context.Context, p int, owner string, free func(holder string) bool) (Partition, error)
	// Release gives a partition up if owner has it.
	Release(ctx context.Context, p int, owner string) error
	// Folds reports whether this process owns the partition at present, as the engine
	// itself has it.
	Folds(ctx context.Context, p int) (bool, error)
	// Folding are the partitions that this process has taken and not closed.
	Folding() map[int]bool
	// Fence makes whoever folds a partition take it anew. What they had not committed
	// is not stored, and nobody takes the partition without having seen the tombstone
	// at seq in SOURCES.
	Fence(ctx context.Context, p int, seq uint64) error
	// AwaitTombstones waits until this process has seen every tombstone there is.
	AwaitTombstones(ctx context.Context) error
	// FollowStates calls put with what is stored of each vehicle and then with every
	// change, until the context ends. The zero state means that the vehicle is forgotten.
	// caughtUp is called once, after all that was stored at the start.
	FollowStates(ctx context.Context, put func(vehicle.ID, vehicle.State), caughtUp func()) error
	// AwaitState waits until FollowStates has passed a sequence of STATES.
	AwaitState(ctx context.Context, seq uint64) error

	// Settle returns once what is folded and an answer already is stored, or does not wait
	// any more.
	Settle(ctx context.Context)

	// Forgotten is this process's copy of the tombstones, which a [RecordStore] feeds.
	Forgotten() *access.Forgotten
	// Erased is the engine's part in erasing: it drives the bytes of removed and replaced
	// records, and of trimmed telemetry, out of its files, if it can, and returns when
	// they are gone.
	Erased(ctx context.Context) error
	// ErasedWithin is how long Erased may take at present; ok is false if the engine
	// cannot tell when the bytes are gone.
	ErasedWithin(ctx context.Context) (d time.Duration, ok bool, err error)
	// TrimTo removes telemetry up to a place, and reports whether all of it is gone: what is
	// not folded yet stays. If the engine cannot tell when bytes are gone, nothing is removed
	// and nothing has to wait.
	TrimTo(ctx context.Context, last uint64) (gone bool, err error)

	// NodeID is the name under which this node stores what only it has counted.
	NodeID() string
	// Alive says why only a restart helps; nil: there is hope.
	Alive() error
	// Writable says why nothing can be stored at present; nil: it can.
	Writable() error
	// Failed yields one error when only a restart helps.
	Failed() <-chan error
	// Fed is the newest moment of which this process's copies hold everything; ok is
	// false before every feed has caught up. It neither blocks nor allocates.
	Fed() (at time.Time, ok bool)
	// Cut makes all that still waits for the engine fail now. Only Close may follow.
	Cut()
	// Close ends everything in order.
	Close() error
}

// Partition is one partition in the hands of the process that folds it. Its methods are
// called one at a time, but for the Commit of an engine that has Answer: that may run beside
// others.
type Partition interface {
	// Load calls put for the stored state of each of the vehicles, at most MaxLoad, that
	// has one, by its place in ids, for several of them at the same time.
	Load(ctx context.Context, ids []vehicle.ID, put func(i int, s vehicle.State)) error
	// Next waits for the next stored samples that are not folded yet. There may be none
	// in what it returns. [ErrSettle] asks for a Commit of what is folded.
	Next(ctx context.Context) (seq uint64, samples []vehicle.Sample, err error)
	// Stored is when what Next returned last was stored, by the engine's clock.
	Stored() time.Time
	// Waiting reports whether Next would return at once.
	Waiting() bool
	// Answer makes a folded state an answer before it is stored, if the engine can promise
	// that no later start answers with an older one. Otherwise it does nothing.
	Answer(id vehicle.ID, s *vehicle.State)
	// Commit stores states and the fact that all up to seq is folded, or nothing. It
	// tries until it is done, the context ends, or the partition is lost ([ErrFenced],
	// [ErrRecalled]). With seq 0 what is folded stays as it is noted; without states too, it
	// only shows that the owner is alive.
	Commit(ctx context.Context, seq uint64, states map[vehicle.ID]*vehicle.State) error
	// Close ends reading.
	Close()
}

// Recent is what is still stored of one vehicle's telemetry.
type Recent struct {
	Samples []vehicle.Sample // by time
	// Since is how far back was read: Samples are all that was stored of the vehicle
	// since then.
	Since time.Time
	// All is set if that is as far back as telemetry reaches.
	All bool
}

var (
	// ErrHeld means that another node owns the partition and may keep it. The caller
	// asks again soon, because that node is about to release it.
	ErrHeld = errors.New("another node has the partition")
	// ErrRecalled means that a forget or a restore has changed stored states of the
	// partition. Its owner takes it again at once. Only what was not committed is
	// folded again.
	ErrRecalled = errors.New("its states were changed by a forget or a restore")
	// ErrFenced means that another node has taken the partition. Nothing was stored,
	// and the caller must drop the partition.
	ErrFenced = errors.New("another node has taken the partition")
	// ErrSettle asks who folds a partition to store what is folded now.
	ErrSettle = errors.New("what is folded is to be stored now")
	// ErrConflict means that others changed a record each time that the caller was
	// about to. Nothing was stored.
	ErrConflict = errors.New("the record is being changed by others: try again")
	// ErrOverloaded means that more samples wait than the disk takes.
	ErrOverloaded = errors.New("too many samples wait to be stored")
	// ErrBacklog means that derive lags behind so far that storing more would endanger
	// what was acknowledged.
	ErrBacklog = errors.New("too many stored samples wait to be judged")
	// ErrReplaced means that a stream is not the one that was read before, so that the
	// copy made from it must be thrown away. A new start makes another.
	ErrReplaced = errors.New("the stream was replaced")
	// ErrStop ends a scan that goes on after other errors.
	ErrStop = errors.New("the scan was stopped")
)

// State reads the state of one vehicle; ok is false if it has none.
func State(ctx context.Context, e Engine, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	e.Settle(ctx)
	r, err := e.Last(ctx, codec.States, codec.StateSubject(codec.PartitionOf(id, e.Partitions()), id))
	if err != nil || r.Seq == 0 || codec.IsMarker(r.Body) {
		return vehicle.State{}, false, err
	}
	s, err = codec.DecodeState(r.Body)
	return s, err == nil, err
}
