package store

import (
	"context"
	"errors"
	"iter"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// Record is the latest record of a subject in a stream. A subject is the key of a record.
type Record struct {
	Subject string
	// Body is the content of the record, without the schema version and the checksum that seal it.
	// A callback that receives a record must not use Body or Sealed after it has returned.
	Body []byte
	// Seq is the record's sequence in its stream. 0 means that there is no record.
	Seq uint64
	// Sealed is the record as it is stored: schema version, Body and checksum.
	Sealed []byte
	// Newer means that a newer version of carstate wrote the record, so that this version cannot
	// decode it; Body is then nil. Feeds, ScanFrom and Before return such records. Other methods,
	// such as Last, return an error for which [codec.IsNewer] is true. So [Change], which calls
	// Last first, never replaces the record of a newer version.
	Newer bool
	// Stored is the time at which the record was stored. Only [Records.Before] sets it, and only if
	// Newer is set.
	Stored time.Time
}

// Write is a request to store a record in place of its subject's last one.
type Write struct {
	Subject string
	Record  []byte // as sealed by [codec.Seal]
	// Expect is the sequence that the subject's current record must have, or 0 if there must be no
	// record. Expect is ignored unless Expected is set. If the current sequence of a subject
	// differs from the expected one, the call of [Records.Store] that contains the write stores
	// none of its writes.
	Expect   uint64
	Expected bool
}

// End is the end of a stream: the sequence of its newest record. It also contains the stream's
// creation time. A change of this time shows a reader that the stream was created again.
type End struct {
	Last uint64 // sequence of the newest record; 0 if the stream never had one
	Made int64  // creation time of the stream, Unix ns; sequences of a re-created stream start again
}

// Records is the part of a storage engine that keeps the last record of each subject (key) in each
// stream. Package codec defines the streams and their subjects.
type Records interface {
	// Last returns the current record of a subject. If there is none, the record's Seq is 0.
	Last(ctx context.Context, stream, subject string) (Record, error)
	// Store stores all writes or none, and returns the sequence of the last write. When it returns
	// no error, the writes are on disk. [ErrConflict] means that nothing was stored, because a
	// subject's current record does not have the sequence that its write expects. If Store returns
	// [context.DeadlineExceeded] although ctx has not ended, the storage engine did not respond,
	// and it is unknown whether the writes were stored.
	Store(ctx context.Context, stream string, writes []Write) (seq uint64, err error)
	// Scan calls do with the last record of each subject that matches one of the patterns, in no
	// particular order. In a pattern, * stands for one part of a subject between dots. If a subject
	// changes during the scan, do may receive the old record, the new record, or both. If do
	// returns an error, Scan ends and returns that error.
	Scan(ctx context.Context, stream string, patterns []string, do func(Record) error) error
	// ScanFrom calls do with the records whose sequence is from or greater. next is the sequence
	// from which a later call continues. damaged is the number of records that are damaged or for
	// which do returned an error. ScanFrom skips damaged records, and continues after an error from
	// do.
	ScanFrom(ctx context.Context, stream string, from uint64, do func(Record) error) (next uint64, damaged int, err error)
	// Before returns at most limit records whose sequences are less than before, newest first. If
	// before is 0, it starts with the newest record. The stream must be one that keeps all its
	// records. older is the value of before for the next page, or 0 if there is no next page.
	Before(ctx context.Context, stream string, before uint64, limit int) (records []Record, older uint64, err error)
	// Remove removes the given records, which it identifies by Subject and Seq. If a record was
	// replaced after it was read, Remove does not remove its successor and returns no error for it.
	// If Seq is 0, it removes whatever record the subject has.
	Remove(ctx context.Context, stream string, records []Record) error
	// End returns the sequence of a stream's newest record and the creation time of the stream.
	End(ctx context.Context, stream string) (End, error)
	// Feed returns a feed of a stream, which [Feed.Run] starts. The feed calls apply with the last
	// record of each subject, and then with each new record, in order. If apply returns an error
	// for a damaged record, the feed ends: Run returns the error, the engine fails (see
	// [Engine.Failed]), or both.
	Feed(stream string, apply func(Record) error) Feed
}

// Feed delivers the records of one stream in order.
type Feed interface {
	// Run delivers records until the context ends, and then returns nil. It calls caughtUp once,
	// after it has delivered every record that existed at the start. If a record is damaged or the
	// stream was replaced, Run returns an error, the engine fails (see [Engine.Failed]), or both.
	Run(ctx context.Context, caughtUp func()) error
	// Wait returns nil once the feed's function apply has received the records up to sequence seq,
	// or an error if ctx ends first.
	Wait(ctx context.Context, seq uint64) error
}

// Engine is a storage engine: it stores telemetry and records. When a call that stores data returns
// nil, the data is on disk, unless the operator has set an interval for syncing (--sync-interval).
type Engine interface {
	Records

	// Append stores samples and returns nil once all of them are on disk. Samples of one vehicle
	// keep their order. The caller must not use the slice afterwards. Append returns
	// [ErrOverloaded] or [ErrBacklog] if it refuses the samples because of load. After any error,
	// the caller must acknowledge none of the samples; some may be stored, which is harmless,
	// because a state ignores a sample that is not newer.
	Append(ctx context.Context, samples []vehicle.Sample) error
	// Recent returns the newest retained samples of a vehicle: about as many as most says, or those
	// that were read when the context ended.
	Recent(ctx context.Context, id vehicle.ID, most int) (Recent, error)
	// Trim removes telemetry that is both folded into states and older than the retention. If the
	// stored telemetry exceeds 80 % of its maximum size (Config.TelemetryBytes), Trim also removes
	// the oldest folded telemetry, down to 60 %. Trim runs until the context ends or the engine
	// fails. Nodes with the role derive run it.
	Trim(ctx context.Context)

	// Partitions returns the number of partitions, which is fixed at the first start.
	Partitions() int
	// Take makes the process with the given name the owner of partition p, once this process has
	// received every stored tombstone. Saves of the previous owner then fail. Take first calls free
	// with the name of the current owner, or "" if there is none; if free returns false, Take
	// changes nothing and returns [ErrHeld]. Questions for the partition go to owner from then on.
	Take(ctx context.Context, p int, name string, owner Owner, free func(holder string) bool) (Partition, error)
	// Release gives up partition p if the process with the given name owns it.
	Release(ctx context.Context, p int, name string) error
	// Folding returns the numbers of the partitions that this process has taken and not closed,
	// each with the value true. Another process may have taken some of them in the meantime.
	Folding() map[int]bool
	// Ask passes a question to the owner of partition p, on whichever node it is, and returns its
	// reply. If there is no owner, or it does not reply in time, the error is [ErrNoOwner].
	Ask(ctx context.Context, p int, q *Question) (Reply, error)
	// FollowAnswers calls put with the answer of each vehicle and then with every change, until the
	// context ends. A zero Answer means that the vehicle was forgotten. Calls of put for different
	// partitions are concurrent. FollowAnswers calls caughtUp once, after the owner of each
	// partition has folded all telemetry that was stored when it took it, and put has received the
	// answers.
	FollowAnswers(ctx context.Context, put func(vehicle.ID, *Answer), caughtUp func()) error
	// AwaitTombstones waits until this process has received every tombstone that is stored now, and
	// then returns nil. It returns an error if the engine has failed, if the tombstones that this
	// process has received are of another stream SOURCES than the present one ([ErrReplaced]), or
	// if ctx ends first.
	AwaitTombstones(ctx context.Context) error
	// Unfolded returns the samples that this process has stored and that are not folded yet.
	Unfolded() *Unfolded
	// Forgotten returns this process's copy of the tombstones, which a [RecordStore] maintains.
	Forgotten() *access.Forgotten
	// Erased removes the bytes of deleted and replaced records, and of trimmed telemetry, from the
	// engine's files. It returns when the bytes are gone. If an engine cannot tell when bytes are
	// gone, Erased does nothing.
	Erased(ctx context.Context) error
	// ErasedWithin returns an estimate of how long a call of Erased would take at present. ok is
	// false if the engine cannot tell when bytes are gone; d is then meaningless.
	ErasedWithin(ctx context.Context) (d time.Duration, ok bool, err error)
	// TrimTo removes telemetry up to the sequence last that is already folded into states.
	// Telemetry that is not folded yet stays. gone is true if no telemetry up to last is left, and
	// false if some of it is not folded yet. If an engine cannot tell when bytes are gone, TrimTo
	// leaves the removal to Trim and returns true.
	TrimTo(ctx context.Context, last uint64) (gone bool, err error)

	// Alive returns an error if the engine has failed and only a restart can help, else nil.
	Alive() error
	// Writable returns an error if nothing can be stored at present, else nil.
	Writable() error
	// Scarce reports whether so little room is left that it is reserved for taking rights away.
	Scarce() bool
	// Failed returns a channel that receives one error when the engine has failed and only a
	// restart can help. The channel is never closed.
	Failed() <-chan error
	// Fed returns the latest times up to which this process's copies of the stored records, and its
	// answers, are complete: they contain every change that was made before. ok is false until every
	// feed of records has delivered all that existed at its start. Fed neither blocks nor allocates.
	Fed() (records, answers time.Time, ok bool)
	// Cut makes all requests in flight fail at once, so that no caller waits for an engine that
	// does not respond. Only Close may be called afterwards.
	Cut()
	// Close shuts the engine down in an orderly way.
	Close() error
}

// Partition is one partition that this process owns. Save and Forgotten may be called concurrently
// with the other methods and with each other.
type Partition interface {
	// Checkpoints returns the checkpoints of the partition as of Take, oldest first.
	Checkpoints() []Checkpoint
	// End returns the sequence of the newest telemetry as of Take.
	End() uint64
	// Seek makes Next continue after the position of a checkpoint, or with a zero one, at the beginning.
	// It returns [codec.ErrDamaged] if telemetry after that was removed already, or if the beginning is
	// wanted and the checkpoints have restored states.
	Seek(ctx context.Context, c Checkpoint) error
	// Next waits for the next group of samples that were stored together. If the caller no longer
	// owns the partition, the error may be [ErrFenced].
	Next(ctx context.Context) (Group, error)
	// Forgotten reports whether what a group or checkpoint with the sequence seq has of a vehicle
	// must be ignored, because the vehicle was forgotten. If a newer version wrote the tombstone,
	// [codec.IsNewer] is true for the error.
	Forgotten(id vehicle.ID, seq uint64) (bool, error)
	// Live begins the publishing of answers with all that the owner has, unless ctx ends first.
	Live(ctx context.Context, answers func(yield func(vehicle.ID, *Answer)))
	// Publish publishes a new answer.
	Publish(id vehicle.ID, a *Answer)
	// Save stores the pieces of a checkpoint and then the checkpoint itself, in place of the oldest,
	// and returns it with the number of pieces. If c.Number is 0, it stores only the cursor again.
	// If erase is set, it then removes all other checkpoints. While the store cannot write, it
	// retries until ctx ends. If the caller no longer owns the partition, the error is [ErrFenced].
	Save(ctx context.Context, c Checkpoint, pieces iter.Seq[Piece], erase bool) (Checkpoint, error)
	// Close stops reading, publishing and answering questions. This process remains the owner until
	// Release is called or another process takes the partition.
	Close()
}

// Group is samples that were stored together.
type Group struct {
	Seq     uint64
	Stored  time.Time // is in the log, so it is the same whenever the group is folded
	Samples []vehicle.Sample
}

// Recent is the telemetry of one vehicle that is still retained, or the newest part of it.
// [Engine.Recent] returns it.
type Recent struct {
	Samples []vehicle.Sample // in order of time
	// Since is the time back to which [Engine.Recent] has read: Samples contains every sample of
	// the vehicle that was stored at Since or later.
	Since time.Time
	// All is set if Samples contains all retained telemetry of the vehicle, so that Since is the
	// beginning of the retained telemetry.
	All bool
}

var (
	// ErrHeld means that [Engine.Take] did not take a partition, because another live node owns it.
	// The caller should retry soon, because the owner is about to release the partition.
	ErrHeld = errors.New("another node owns the partition")
	// ErrFenced means that another node has taken the partition. States that the caller has folded
	// after that were not stored. The caller must stop folding the partition.
	ErrFenced = errors.New("another node has taken the partition")
	// ErrNoOwner means that no node folds a partition at present, or that its owner does not reply.
	ErrNoOwner = errors.New("no node folds the vehicle's partition at present: try again")
	// ErrConflict means that nothing was stored, because another writer had changed the record
	// first. [Change] returns it only after repeated attempts.
	ErrConflict = errors.New("the record is being changed by another writer: try again")
	// ErrOverloaded means that samples arrive faster than the disk can store them.
	ErrOverloaded = errors.New("too many samples are waiting to be stored")
	// ErrBacklog means that too many stored samples are not folded into states yet. If more samples
	// were stored, acknowledged samples could be dropped before they are folded.
	ErrBacklog = errors.New("too many stored samples are waiting to be folded")
	// ErrReplaced means that a stream is not the one that this process read before, because the
	// stream was re-created or has lost its newest records. The process must discard what it has
	// read from the stream and end. Its next start reads the stream again.
	ErrReplaced = errors.New("the stream was replaced")
)
