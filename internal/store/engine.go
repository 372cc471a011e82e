package store

import (
	"context"
	"errors"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
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
	// Folded is the sequence of TELEMETRY up to which samples are folded into this state. It is 0
	// if the record is not a state that [Partition.Commit] has stored, or if that sequence is the
	// cursor.
	Folded uint64
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

// Engine is a storage engine: it stores telemetry, states and records. When a call that stores data
// returns nil, the data is on disk, unless the operator has set an interval for syncing to disk
// (--sync-interval). [Partition.Commit] may be an exception: on one machine, it does not wait for
// the disk, because after a crash the states are folded again from the stored samples.
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
	// Take makes owner the owner of partition p, and returns the partition, from which the owner
	// reads samples and to which it commits states. The commits of the previous owner then fail.
	// Take first calls free with the name of the current owner, or "" if there is none. free
	// reports whether the partition may be taken. If free returns false, Take changes nothing and
	// returns [ErrHeld].
	Take(ctx context.Context, p int, owner string, free func(holder string) bool) (Partition, error)
	// Release gives up partition p if owner owns it. Otherwise, it changes nothing and returns nil.
	Release(ctx context.Context, p int, owner string) error
	// Folding returns the numbers of the partitions that this process has taken and not closed,
	// each with the value true. In a cluster, it does not ask the NATS servers, so another process
	// may have taken some of these partitions in the meantime.
	Folding() map[int]bool
	// Fence forces the owner of partition p to drop the state of a vehicle, or if id is "", to take
	// the partition again, which drops all. Until the owner has done so, its commits of the state
	// fail. seq is the sequence of a record in the stream SOURCES, such as the tombstone of the
	// vehicle. Once Fence has returned, only a node that has received that record folds the
	// partition.
	Fence(ctx context.Context, p int, seq uint64, id vehicle.ID) error
	// AwaitTombstones waits until this process has received every tombstone that is stored now, and
	// then returns nil. It returns an error if the engine has failed, if the tombstones that this
	// process has received are of another stream SOURCES than the present one ([ErrReplaced]), or
	// if ctx ends first.
	AwaitTombstones(ctx context.Context) error
	// FollowStates calls put with the stored state of each vehicle and then with every change,
	// until the context ends. A zero state means that the vehicle was forgotten. put must neither
	// change the state nor keep the pointer. FollowStates calls caughtUp once, after put has
	// received all states that were stored at the start. If a state is damaged, FollowStates
	// returns an error, the engine fails (see Failed), or both.
	FollowStates(ctx context.Context, put func(vehicle.ID, *vehicle.State), caughtUp func()) error
	// AwaitState waits until put of FollowStates has received all states up to sequence seq of the
	// stream STATES, and then returns nil. If ctx ends first, it returns an error. If FollowStates
	// was never called, AwaitState returns nil at once.
	AwaitState(ctx context.Context, seq uint64) error

	// Settle waits until all folded states that are published to queries are also stored. (An
	// engine may publish a state before it is stored; see [Partition.Answer].) Settle returns early
	// when ctx ends, after a time limit of the engine, or if writes to the store fail.
	Settle(ctx context.Context)
	// Unstored returns the newest state of a vehicle from the memory of this process, and true. If
	// this process does not fold the vehicle's samples, or if the state in memory cannot differ
	// from the stored one, ok is false and s is the zero state.
	Unstored(ctx context.Context, id vehicle.ID) (s vehicle.State, ok bool)

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
	// Fed returns the latest time up to which this process's copies of the stored records are
	// complete: the copies contain every change that was stored before that time. ok is false until
	// every feed has delivered all records that existed at its start. Fed neither blocks nor
	// allocates.
	Fed() (at time.Time, ok bool)
	// Cut makes all requests in flight fail at once, so that no caller waits for an engine that
	// does not respond. Only Close may be called afterwards.
	Cut()
	// Close shuts the engine down in an orderly way.
	Close() error
}

// Partition is one partition that this process owns. Its methods must not be called concurrently,
// with one exception: if the engine publishes states that are not stored yet (see Answer), Commit
// may run concurrently with the other methods.
type Partition interface {
	// States calls put with the stored state of every vehicle of the partition, packed as by
	// [codec.AppendState], and with the sequence up to which telemetry is folded into a state that
	// is ahead of the cursor, otherwise 0. put must not keep packed. If a newer version wrote a
	// state, [codec.IsNewer] is true for the error.
	States(ctx context.Context, put func(id vehicle.ID, packed []byte, folded uint64)) error
	// Next waits for the oldest group of stored samples that are not folded into states yet. seq is
	// its sequence: the caller folds the samples, and then passes seq to Commit. The samples of
	// forgotten vehicles are left out. If ctx ends first, Next returns an error. If the caller no
	// longer owns the partition, the error is [ErrFenced] or [ErrRecalled].
	//
	// Two errors are requests to the caller: [ErrSettle] asks it to commit the folded states, and a
	// [*StateRequest] asks it for one state. The caller fulfills the request, and then calls Next
	// again.
	Next(ctx context.Context) (seq uint64, samples []vehicle.Sample, err error)
	// Stored returns the time at which the group of samples that the last call of Next returned was
	// stored. The time is in the log, so it is the same whenever the group is folded.
	Stored() time.Time
	// Waiting reports whether Next would return at once, because samples wait to be folded.
	Waiting() bool
	// Answer publishes a folded state to queries before the state is stored. An engine publishes it
	// only if it can guarantee that no query gets an older state after a restart; in other engines,
	// Answer does nothing. The caller passes each changed state first to Answer and then to Commit.
	Answer(id vehicle.ID, s *vehicle.State)
	// Commit stores packed states into which all telemetry up to the sequence seq is folded. In the
	// same batch it sets the partition's cursor, the sequence up to which telemetry is folded, to
	// seq. If more is set, the cursor stays, because other states are not stored yet: only engines
	// that publish states before they are stored permit this. So the cursor never moves beyond a
	// sample whose state is not stored. If seq is 0, the cursor keeps its value. If also states is
	// empty, Commit only verifies that the caller owns the partition.
	//
	// Commit returns nil once all states are stored. While the store cannot write, Commit waits or
	// retries until ctx ends, and then returns an error. If the caller no longer owns the
	// partition, Commit returns [ErrFenced] or [ErrRecalled].
	Commit(ctx context.Context, seq uint64, states map[vehicle.ID][]byte, more bool) error
	// Close stops reading samples. This process remains the owner of the partition until Release is
	// called or another process takes the partition.
	Close()
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
	// ErrRecalled means that a forget or a restore has changed stored states of the partition. The
	// owner must take the partition again at once. Samples whose states were not committed are then
	// folded again.
	ErrRecalled = errors.New("a forget or a restore changed its states")
	// ErrFenced means that another node has taken the partition. States that the caller has folded
	// after that were not stored. The caller must stop folding the partition.
	ErrFenced = errors.New("another node has taken the partition")
	// ErrSettle is an error of [Partition.Next] that asks the owner of a partition to commit its
	// folded states soon, because a call of [Engine.Settle] waits for them.
	ErrSettle = errors.New("the folded states must be committed now")
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

// StateRequest is an error of [Partition.Next] that asks the owner of a partition for the state of
// one vehicle. The owner must call Reply immediately and exactly once: with the state, or with nil
// if the owner does not have the state in memory.
type StateRequest struct {
	Vehicle vehicle.ID
	Drop    bool // the owner must have dropped the state when it replies
	Reply   func(*vehicle.State)
}

func (*StateRequest) Error() string { return "the state of a vehicle is wanted" }

// PutState passes a record of a partition with the given cursor to put, as [Partition.States] does.
func PutState(r Record, cursor uint64, put func(id vehicle.ID, packed []byte, folded uint64)) {
	if id, ok := codec.VehicleOfState(r.Subject); ok && !codec.IsMarker(r.Body) {
		if r.Folded <= cursor {
			r.Folded = 0
		}
		put(id, r.Body, r.Folded)
	}
}

// State returns the newest state of one vehicle, even if that state is not stored yet. If the owner
// of the vehicle's partition does not answer within seconds, State returns the stored state. If the
// vehicle has no state, ok is false and err is nil.
func State(ctx context.Context, e Engine, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	if s, ok = e.Unstored(ctx, id); ok {
		return s, true, nil
	}
	r, err := e.Last(ctx, codec.States, codec.StateSubject(codec.PartitionOf(id, e.Partitions()), id))
	if err != nil || r.Seq == 0 || codec.IsMarker(r.Body) {
		return vehicle.State{}, false, err
	}
	s, err = codec.DecodeState(r.Body)
	return s, err == nil, err
}
