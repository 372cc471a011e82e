package store

import (
	"context"
	"errors"
	"iter"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

type Record struct {
	Subject string
	// Body is the content without schema version and checksum. A callback must not use Body or
	// Sealed after it has returned.
	Body   []byte
	Seq    uint64 // Seq is 0 if there is no record.
	Sealed []byte
	// Newer means that a newer version wrote the record; Body is then nil. Only feeds, ScanFrom and
	// Before return such records; others return an error for which [codec.IsNewer] is true.
	Newer  bool
	Stored time.Time // Stored is set only by [Records.Before], and only with Newer.
}

type Write struct {
	Subject  string
	Record   []byte // as sealed by [codec.Seal]
	Expect   uint64 // If Expected, the subject's record must have this sequence; 0: there must be none.
	Expected bool
}

type Records interface {
	// Last returns the current record of a subject; its Seq is 0 if there is none.
	Last(ctx context.Context, stream, subject string) (Record, error)
	// Store stores all writes or none, on disk, and returns the sequence of the last. [ErrConflict]
	// means that a record does not have the expected sequence. After [context.DeadlineExceeded]
	// without an end of ctx, it is unknown whether the writes were stored.
	Store(ctx context.Context, stream string, writes []Write) (seq uint64, err error)
	// Scan calls do with the last record of each subject that matches a pattern, in any order; *
	// stands for one name. For a subject that changes meanwhile, do may receive the old record, the
	// new one, or both. An error of do ends the scan.
	Scan(ctx context.Context, stream string, patterns []string, do func(Record) error) error
	// ScanFrom calls do with the records from a sequence on. It skips and counts those that are
	// damaged or for which do returns an error. A later call from next continues.
	ScanFrom(ctx context.Context, stream string, from uint64, do func(Record) error) (next uint64, damaged int, err error)
	// Before returns at most limit records before a sequence, newest first; before 0 is the end.
	// The stream must be AUDIT, which keeps all its records. older is the before of the next page;
	// 0 after the last.
	Before(ctx context.Context, stream string, before uint64, limit int) (records []Record, older uint64, err error)
	// Remove removes the last record of each subject, in order. If a Seq is not 0, a record that
	// was stored after it stays.
	Remove(ctx context.Context, stream string, records []Record) error
	// Feed returns a feed that calls apply with the last record of each subject, and then with each
	// new one, in order.
	Feed(stream string, apply func(Record) error) Feed
}

type Feed interface {
	// Run calls caughtUp once, after every record that existed at the start, and returns nil when
	// ctx ends. If a record is damaged or the stream was replaced, it returns an error, or the
	// engine fails, or both.
	Run(ctx context.Context, caughtUp func()) error
	// Wait returns nil once apply has received the records up to seq.
	Wait(ctx context.Context, seq uint64) error
}

// Engine stores telemetry and records. When a call that stores returns nil, the data is on disk,
// unless the operator has set an interval for syncing.
type Engine interface {
	Records

	// Append stores samples, and keeps the order of those of a vehicle. The caller must not use the
	// slice afterwards. The error is [ErrOverloaded] or [ErrBacklog] because of load. After an
	// error, some samples may be stored; all can be sent again, because a state ignores a sample
	// that is not newer.
	Append(ctx context.Context, samples []vehicle.Sample) error
	// Recent reads the newest samples of a vehicle until it has at least most of them, or all, or
	// ctx ends.
	Recent(ctx context.Context, id vehicle.ID, most int) (Recent, error)
	// Trim removes folded telemetry that is older than the retention. If telemetry exceeds 80 % of
	// its limit, the oldest that is folded goes, too, down to 60 %. Trim runs until ctx ends or the
	// engine fails.
	Trim(ctx context.Context)
	// Ends returns the sequence of the newest record, 0 if there never was one; of TELEMETRY, that
	// of each of its streams. TrimTo removes folded telemetry up to such ends. gone is false if
	// some stays because it is not folded yet.
	Ends(ctx context.Context, stream string) ([]uint64, error)
	TrimTo(ctx context.Context, ends []uint64) (gone bool, err error)

	Partitions() int
	// Take makes the process with this name the owner of partition p, once it has received every
	// stored tombstone; saves of the previous owner then fail. If free returns false for the
	// current owner ("": none), the error is [ErrHeld].
	Take(ctx context.Context, p int, name string, owner Owner, free func(holder string) bool) (Partition, error)
	Release(ctx context.Context, p int, name string) error
	// Folding returns the partitions that this process has taken and not closed, with the value
	// true. Another process may have taken some meanwhile.
	Folding() map[int]bool
	// Ask asks the owner of partition p, on whichever node. If none replies in time, the error is
	// [ErrNoOwner].
	Ask(ctx context.Context, p int, q *Question) (Reply, error)
	// FollowAnswers calls put with the answer of each vehicle and with every change, concurrently
	// for different partitions. A zero Answer means a forgotten vehicle. It calls caughtUp once the
	// answers include all telemetry that was stored when the owners took their partitions.
	FollowAnswers(ctx context.Context, put func(vehicle.ID, *Answer), caughtUp func()) error
	Unfolded() *Unfolded
	Forgotten() *access.Forgotten

	Alive() error
	Writable() error
	// Scarce reports whether so little room is left that it is reserved for taking rights away.
	Scarce() bool
	// Failed receives one error, that of Alive, after which only a restart helps. It is never
	// closed.
	Failed() <-chan error
	// Fed returns the latest times up to which this process's copies of the stored records, and its
	// answers, have every change. ok is false until every feed of records has delivered all that
	// existed at its start. Fed neither blocks nor allocates.
	Fed() (records, answers time.Time, ok bool)
	// Cut makes all requests in flight fail at once, so that no caller waits for an engine that
	// does not respond. Only Close may be called afterwards.
	Cut()
	Close() error
}

// Eraser is implemented by an engine that can tell when bytes are gone.
type Eraser interface {
	// Erased removes the bytes of deleted and replaced records and of trimmed telemetry from the
	// files. ErasedWithin estimates how long that takes.
	Erased(ctx context.Context) error
	ErasedWithin() (time.Duration, error)
}

type Partition interface {
	// Stored returns, as of Take, the checkpoints, oldest first, and the sequence of the newest
	// telemetry.
	Stored() (all []Checkpoint, newest uint64)
	// Seek makes Next continue after c, or if c is zero, at the beginning of the telemetry. The
	// error is [codec.ErrDamaged] if telemetry since c was removed, or if c is zero and the
	// checkpoints have states from a backup, which no telemetry has.
	Seek(ctx context.Context, c Checkpoint) error
	// Next waits for the next group, and may reuse the memory of the one before. After a loss of the
	// partition, the error may be [ErrFenced].
	Next(ctx context.Context) (Group, error)
	// Live begins publishing, with all answers that the owner has: answers calls put with each,
	// concurrently.
	Live(ctx context.Context, answers func(put func(vehicle.ID, *Answer)))
	Publish(id vehicle.ID, a *Answer)
	// Save stores the pieces and then the checkpoint, in place of the oldest, and returns it with
	// the number of pieces. With erase, it then removes all other checkpoints. While the store
	// cannot write, it retries until ctx ends. If the partition was lost, the error is [ErrFenced];
	// if c.Number is 0, Save only finds that out.
	Save(ctx context.Context, c Checkpoint, pieces iter.Seq[Piece], erase bool) (Checkpoint, error)
	// Close stops reading, publishing and answering. The process remains the owner.
	Close()
}

type Group struct {
	Seq     uint64
	Stored  time.Time // from the log, so it is the same whenever the group is folded
	Samples []vehicle.Sample
}

type Recent struct {
	Samples []vehicle.Sample // in order of time
	Since   time.Time
	// All means that Samples has all that is retained, which begins at Since. Otherwise it has all
	// that was stored since then.
	All bool
}

var (
	// ErrHeld means that a live node is about to release the partition.
	ErrHeld = errors.New("another node owns the partition")
	// ErrFenced means that the caller must stop folding. What it folded after it lost the partition
	// was not stored.
	ErrFenced     = errors.New("another node has taken the partition")
	ErrNoOwner    = errors.New("no node folds the vehicle's partition at present: try again")
	ErrConflict   = errors.New("the record is being changed by another writer: try again")
	ErrOverloaded = errors.New("too many samples are waiting to be stored")
	// ErrBacklog refuses samples, so that no acknowledged ones are dropped before they are folded.
	ErrBacklog = errors.New("too many stored samples are waiting to be folded")
	ErrScarce  = errors.New("the disk is full, or nearly: operators can only revoke, remove, forget and back up, the " +
		"admin key is not limited, and one machine refuses telemetry; carstate status says what fills the disk")
	// ErrReplaced means that the process must end. Its next start reads the stream again.
	ErrReplaced = errors.New("the stream was replaced")
)

// Owner replies to questions about its partition, also concurrently.
type Owner func(ctx context.Context, q *Question) (Reply, error)

const (
	AskState      = "state"      // for the packed state of Vehicle
	AskDrop       = "drop"       // to drop the state of Vehicle, which is forgotten
	AskDropAll    = "drop all"   // to drop the states of all forgotten vehicles
	AskTombstones = "tombstones" // to wait until the owner has all stored tombstones
	AskAnswers    = "answers"    // for the answers, from bucket From on, up to the size of a reply
	AskStates     = "states"     // for the states, as AskAnswers
	AskRestore    = "restore"    // to have the states in Entries, unless the owner has newer ones
	AskCheckpoint = "checkpoint" // to store all states in one checkpoint
	AskErase      = "erase"      // as AskCheckpoint, but without old markers, and to remove older checkpoints
)

// ByTombstones reports whether the owner must have every stored tombstone before it replies.
func (q *Question) ByTombstones() bool {
	return q.Kind == AskTombstones || q.Kind == AskDrop || q.Kind == AskDropAll || q.Kind == AskErase
}

type Question struct {
	Kind    string     `json:"kind"`
	Vehicle vehicle.ID `json:"vehicle,omitempty"`
	From    int        `json:"from,omitempty"` // Next of the last reply
	Entries []byte     `json:"entries,omitempty"`
}

type Reply struct {
	Owner      uint64     `json:"owner"` // random; another one each time the partition is taken
	Had        bool       `json:"had,omitempty"`
	State      []byte     `json:"state,omitempty"`   // packed, if Had is set
	Answers    []byte     `json:"answers,omitempty"` // as AppendAnswer packs them
	Entries    []byte     `json:"entries,omitempty"` // as AppendEntry appends them
	Next       int        `json:"next,omitempty"`    // the From of the next question; 0 after the last part
	Restored   int        `json:"restored,omitempty"`
	Kept       int        `json:"kept,omitempty"`
	Checkpoint Checkpoint `json:"checkpoint,omitzero"`
}

type Answer struct {
	Driving                vehicle.DrivingVerdict
	Throttle               vehicle.ThrottleVerdict
	JamSince, AnomalySince signal.UnixMilli // 0: unknown, as is AnomalySince with a trouble code
}

func AnswerOf(s *vehicle.State) Answer {
	a := Answer{Driving: s.Driving(), Throttle: s.Throttle(), JamSince: s.Traffic.Changed}
	if s.ThrottleMemory.FaultCode == (signal.TroubleCode{}) {
		a.AnomalySince = s.ThrottleMemory.Alarm.Since
	}
	return a
}

func State(ctx context.Context, e Engine, id vehicle.ID) (s vehicle.State, ok bool, err error) {
	r, err := e.Ask(ctx, codec.PartitionOf(id, e.Partitions()), &Question{Kind: AskState, Vehicle: id})
	if err != nil || !r.Had {
		return vehicle.State{}, false, err
	}
	s, err = codec.DecodeState(r.State)
	return s, err == nil, err
}
