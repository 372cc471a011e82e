package store

import (
	"context"
	"errors"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// Record is the latest record of a subject in a stream.
type Record struct {
	Subject string
	// Body is the record without its seal. A callback that receives a record may use Body and
	// Sealed only until it returns.
	Body []byte
	// Seq is the record's sequence in its stream. 0 means that there is no record.
	Seq uint64
	// Sealed is the record as it is stored.
	Sealed []byte
	// Newer means that a newer version of carstate wrote the record, so that this version
	// cannot decode it; Body is then nil. Feeds, ScanFrom and Before return such records. All
	// other calls return an error for which [codec.IsNewer] is true. Because those calls fail,
	// an older record never replaces a newer one.
	Newer bool
	// Stored is the time at which the record was stored. Only Before sets it, and only if Newer
	// is set.
	Stored time.Time
}

// Write is a request to store a record in place of its subject's last one.
type Write struct {
	Subject string
	Record  []byte // as sealed by [codec.Seal]
	// Expect is the sequence that the subject's current record must have, 0 for none. It
	// applies only if Expected is set. Of writes that belong together, only the last may set
	// Expected.
	Expect   uint64
	Expected bool
}

// End describes the end of a stream.
type End struct {
	Last uint64 // sequence of the newest record; 0 if the stream never had one
	Made int64  // creation time of the stream, Unix ns; sequences of a re-created stream start again
}

// Records is the part of an engine that keeps the last record of each subject. Package codec
// defines the streams and their subjects.
type Records interface {
	// Last returns the current record of a subject.
	Last(ctx context.Context, stream, subject string) (Record, error)
	// Store stores all writes or none, and returns the sequence of the last. When it returns
	// nil, the writes are on disk. [ErrConflict] means that an expectation failed and nothing
	// was stored. A [context.DeadlineExceeded] error while ctx has not ended means that the
	// engine did not respond: it is then unknown whether the writes were stored.
	Store(ctx context.Context, stream string, writes []Write) (seq uint64, err error)
	// Scan calls do with the last record of each subject that matches one of the patterns, in
	// no particular order. If a subject changes during the scan, do receives the newer record
	// too, or instead. An error from do ends the scan.
	Scan(ctx context.Context, stream string, patterns []string, do func(Record) error) error
	// ScanFrom calls do with the records from a sequence on, and returns the sequence after the
	// last one. Damaged records, and records for which do returns an error, are skipped and
	// counted. An error from do that wraps [ErrStop] ends the scan.
	ScanFrom(ctx context.Context, stream string, from uint64, do func(Record) error) (next uint64, damaged int, err error)
	// Before returns at most limit records that precede the sequence before, newest first;
	// before 0 means the end. The stream must be one that keeps all its records. older is the
	// value of before for the next page, or 0 if there is none.
	Before(ctx context.Context, stream string, before uint64, limit int) (records []Record, older uint64, err error)
	// Remove removes records by Subject and Seq, except those that were replaced in between.
	Remove(ctx context.Context, stream string, records []Record) error
	// End returns the end of a stream.
	End(ctx context.Context, stream string) (End, error)
	// Feed returns a feed of a stream, which [Feed.Run] starts. The feed calls apply with the
	// last record of each subject, and then with each new record, in order. An error from apply
	// means that the store cannot be trusted.
	Feed(stream string, apply func(Record) error) Feed
}

// Feed delivers the records of one stream in order.
type Feed interface {
	// Run delivers records until the context ends, and then returns nil. It calls caughtUp
	// once, after it has delivered every record that existed at the start.
	Run(ctx context.Context, caughtUp func()) error
	// Wait returns once apply has received the record at sequence seq.
	Wait(ctx context.Context, seq uint64) error
}

// Engine stores telemetry, states and records. When a call that stores data returns nil, the
// data is on disk, unless the operator has configured otherwise (--sync-interval).
type Engine interface {
	Records

	// Append stores samples and returns nil once all of them are on disk. Samples of one
	// vehicle keep their order. The engine owns the slice afterwards. After an error, the
	// caller must not acknowledge any of the samples. Some of them may be stored nevertheless,
	// which is harmless, because folding a sample twice changes nothing. See [ErrOverloaded]
	// and [ErrBacklog].
	Append(ctx context.Context, samples []vehicle.Sample) error
	// Recent reads the retained samples of a vehicle. It stops once it has all of them, or at
	// least most, or when the context ends, which is not an error.
	Recent(ctx context.Context, id vehicle.ID, most int) (Recent, error)
	// Trim removes telemetry that is both folded and older than the retention, until the
	// context ends. Nodes with the role derive run it.
	Trim(ctx context.Context)

	// Partitions returns the number of partitions, which is fixed at the first start.
	Partitions() int
	// Take makes owner the owner of partition p and fences the previous one. It returns
	// [ErrHeld] if free(holder) is false, where holder is the current owner, or "" if there is
	// none.
	Take(ctx context.Context, p int, owner string, free func(holder string) bool) (Partition, error)
	// Release gives up partition p if owner owns it.
	Release(ctx context.Context, p int, owner string) error
	// Folds reports whether this process currently owns partition p according to the engine.
	Folds(ctx context.Context, p int) (bool, error)
	// Folding returns the partitions that this process has taken and not closed.
	Folding() map[int]bool
	// Fence forces the owner of partition p to take it again. States that the owner has not
	// committed are not stored, and no node can take the partition before it has received the
	// tombstone at sequence seq of SOURCES.
	Fence(ctx context.Context, p int, seq uint64) error
	// AwaitTombstones waits until this process has received every stored tombstone.
	AwaitTombstones(ctx context.Context) error
	// FollowStates calls put with the stored state of each vehicle and then with every change,
	// until the context ends. The zero state means that the vehicle was forgotten. caughtUp is
	// called once, after all states that were stored at the start.
	FollowStates(ctx context.Context, put func(vehicle.ID, vehicle.State), caughtUp func()) error
	// AwaitState waits until FollowStates has passed sequence seq of STATES.
	AwaitState(ctx context.Context, seq uint64) error

	// Settle waits until every state that is already an answer is stored. It gives up when ctx
	// ends, after a time limit of the engine, or if nothing can be stored.
	Settle(ctx context.Context)

	// Forgotten returns this process's copy of the tombstones, which a [RecordStore] maintains.
	Forgotten() *access.Forgotten
	// Erased removes the bytes of deleted and replaced records, and of trimmed telemetry, from
	// the engine's files, and returns when they are gone. An engine that cannot tell when they
	// are gone does nothing.
	Erased(ctx context.Context) error
	// ErasedWithin returns how long Erased may take at present. ok is false if the engine
	// cannot tell when the bytes are gone.
	ErasedWithin(ctx context.Context) (d time.Duration, ok bool, err error)
	// TrimTo removes the folded telemetry up to sequence last, and reports whether all of it is
	// gone: telemetry that is not folded yet stays. An engine that cannot tell when bytes are
	// gone removes nothing and returns true, so that the caller does not wait.
	TrimTo(ctx context.Context, last uint64) (gone bool, err error)

	// NodeID returns the name by which this node stores its own counts.
	NodeID() string
	// Alive returns an error if only a restart can help, else nil.
	Alive() error
	// Writable returns an error if nothing can be stored at present, else nil.
	Writable() error
	// Failed returns a channel that receives one error when only a restart can help.
	Failed() <-chan error
	// Fed returns the latest time up to which this process's copies are complete. ok is false
	// before every feed has caught up. Fed neither blocks nor allocates.
	Fed() (at time.Time, ok bool)
	// Cut makes all requests in flight fail at once. Only Close may be called afterwards.
	Cut()
	// Close shuts the engine down in order.
	Close() error
}

// Partition is one partition that this process owns. Its methods are called one at a time, with
// one exception: if the engine implements Answer, Commit may run concurrently with the others.
type Partition interface {
	// Load reads the stored states of at most MaxLoad vehicles. For each vehicle that has a
	// state, it calls put with the index in ids. Calls of put may be concurrent.
	Load(ctx context.Context, ids []vehicle.ID, put func(i int, s vehicle.State)) error
	// Next waits for the next samples that are not folded yet, which may be an empty slice.
	// [ErrSettle] asks the caller to commit the folded states now.
	Next(ctx context.Context) (seq uint64, samples []vehicle.Sample, err error)
	// Stored returns when the samples of the last Next were stored, by the engine's clock.
	Stored() time.Time
	// Waiting reports whether Next would return at once.
	Waiting() bool
	// Answer publishes a folded state to queries before it is stored. An engine does so only if
	// it can guarantee that no later start answers with an older state. Otherwise Answer does
	// nothing.
	Answer(id vehicle.ID, s *vehicle.State)
	// Commit stores states, in several batches if necessary. The last batch also moves the
	// cursor to seq, so that the cursor never covers a sample whose state is not stored. Commit
	// retries until it succeeds, the context ends, or the partition is lost ([ErrFenced],
	// [ErrRecalled]). seq 0 leaves the cursor's position unchanged; with no states too, Commit
	// only verifies the ownership, for which an engine may rewrite the cursor.
	Commit(ctx context.Context, seq uint64, states map[vehicle.ID]*vehicle.State) error
	// Close stops reading. It does not release the partition.
	Close()
}

// Recent is the retained telemetry of one vehicle, or its newest part.
type Recent struct {
	Samples []vehicle.Sample // in order of time
	// Since is how far back Recent has read: Samples holds every sample of the vehicle that was
	// stored since then.
	Since time.Time
	// All is set if Since is the beginning of the retained telemetry.
	All bool
}

var (
	// ErrHeld means that another live node owns the partition. The caller retries soon, because
	// that node is about to release it.
	ErrHeld = errors.New("another node owns the partition")
	// ErrRecalled means that a forget or a restore has changed stored states of the partition.
	// The owner must take the partition again at once. Only samples that were not committed are
	// folded again.
	ErrRecalled = errors.New("a forget or a restore changed its states")
	// ErrFenced means that another node has taken the partition. Nothing was stored, and the
	// caller must drop the partition.
	ErrFenced = errors.New("another node has taken the partition")
	// ErrSettle asks the owner of a partition to commit its folded states now.
	ErrSettle = errors.New("the folded states must be committed now")
	// ErrConflict means that another writer changed the record before every attempt. Nothing
	// was stored.
	ErrConflict = errors.New("the record is being changed by another writer: try again")
	// ErrOverloaded means that samples arrive faster than the disk can store them.
	ErrOverloaded = errors.New("too many samples are waiting to be stored")
	// ErrBacklog means that derive lags so far behind that storing more samples would endanger
	// samples that are already acknowledged.
	ErrBacklog = errors.New("too many stored samples are waiting to be folded")
	// ErrReplaced means that a stream is not the one that was read before: it was re-created,
	// or has lost its end. Copies made from it must be discarded; the next start builds new
	// ones.
	ErrReplaced = errors.New("the stream was replaced")
	// ErrStop, returned by the callback of ScanFrom, ends the scan.
	ErrStop = errors.New("the scan was stopped")
)

// State reads the state of one vehicle. ok is false if the vehicle has none.
func State(ctx context.Context, e Engine, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	e.Settle(ctx)
	r, err := e.Last(ctx, codec.States, codec.StateSubject(codec.PartitionOf(id, e.Partitions()), id))
	if err != nil || r.Seq == 0 || codec.IsMarker(r.Body) {
		return vehicle.State{}, false, err
	}
	s, err = codec.DecodeState(r.Body)
	return s, err == nil, err
}
