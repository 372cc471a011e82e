package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

const (
	CheckpointCycle = 16 // CheckpointCycle successive checkpoints contain every state.
	// If one of the KeptCheckpoints is damaged, those before it and the telemetry since are read.
	KeptCheckpoints = 2 * CheckpointCycle
	// PieceBytes is the usual size of a piece before compression. NATS accepts messages of 1 MB.
	PieceBytes = 512 << 10
)

// Checkpoint describes the states of a partition that have changed since the checkpoint before, and
// those of a 16th of all vehicles, which a hash chooses.
type Checkpoint struct {
	Number uint64 `json:"number"`
	First  uint64 `json:"first"` // First is the oldest checkpoint that must be read for all states.
	Owner  uint64 `json:"owner"` // Reply.Owner of its writer
	// Every sample up to Seq is folded; a state may include later samples, up to the Seq of its
	// piece.
	Seq uint64 `json:"seq"`
	// Day counts the days on which telemetry was stored before the checkpoint; Date is the Unix day
	// of the last of them.
	Day    uint16 `json:"day"`
	Date   int64  `json:"date"`
	Pieces int    `json:"pieces"`
	Bytes  int    `json:"bytes"` // before compression
	Seed   uint64 `json:"seed"`  // of the hash of vids that chooses the 16th
	// Restored means that some states come from a backup, so that no telemetry has them.
	Restored bool `json:"restored,omitzero"`
	// Replaced means that the telemetry stream was replaced, so that the positions in the pieces
	// mean nothing any more. Seq is 0 then.
	Replaced bool `json:"replaced,omitzero"`
}

func (c *Checkpoint) Add(piece Piece) { c.Pieces, c.Bytes = c.Pieces+1, c.Bytes+len(piece.Entries) }

type Piece struct {
	Seq     uint64
	Entries []byte // as AppendEntry appends them
}

func (c Checkpoint) Subject(p, piece int) string {
	return codec.ChunkSubject(p, int(c.Number%KeptCheckpoints), piece)
}

func (c Checkpoint) Seal(p, number int, piece Piece) Write {
	b := []byte{0}
	for _, n := range [...]uint64{c.Number, c.Owner, piece.Seq} {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, s2.Encode(nil, piece.Entries)...)
	subject := c.Subject(p, number)
	return Write{Subject: subject, Record: codec.Seal(subject, b)}
}

// ReadStates calls put with the pieces, oldest first, that the last checkpoint in all needs. A
// later entry of a vehicle replaces an earlier one. put must not keep the entries. For a damaged or
// missing piece, the error is [codec.ErrDamaged].
func ReadStates(ctx context.Context, r Records, p int, all []Checkpoint, put func(Piece) error) error {
	pieces := make(chan Piece)
	var failed error // set before pieces is closed
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(pieces)
		var used, free []byte // memory: while a piece is put, the next is read into the other
		for _, c := range all {
			for number := 0; c.Number >= all[len(all)-1].First && number < c.Pieces; number++ {
				piece, err := readPiece(reading, r, p, c, number, free)
				if failed = err; err != nil {
					return
				}
				used, free = piece.Entries, used
				if c.Replaced {
					piece.Seq = 0
				}
				select {
				case pieces <- piece:
				case <-reading.Done():
					return
				}
			}
		}
	}()
	for piece := range pieces {
		if err := put(piece); err != nil {
			return err
		}
	}
	return cmp.Or(failed, ctx.Err())
}

func readPiece(ctx context.Context, r Records, p int, c Checkpoint, number int, buffer []byte) (piece Piece, err error) {
	rec, err := r.Last(ctx, codec.States, c.Subject(p, number))
	if err != nil {
		return piece, err
	}
	body := codec.Reader{Rest: rec.Body}
	n, owner, seq := body.Uvarint(), body.Uvarint(), body.Uvarint()
	if body.Short || n != c.Number || owner != c.Owner {
		return piece, fmt.Errorf("%w: a piece of checkpoint %d of partition %d is missing", codec.ErrDamaged, c.Number, p)
	}
	piece.Seq = seq
	if size, err := s2.DecodedLen(body.Rest); err != nil || size > maxPieceBytes {
		return piece, codec.ErrDamaged
	}
	if piece.Entries, err = s2.Decode(buffer[:cap(buffer)], body.Rest); err != nil {
		return piece, fmt.Errorf("%w: %w", codec.ErrDamaged, err)
	}
	return piece, nil
}

const maxPieceBytes = 16 << 20

type Entry struct {
	Vehicle vehicle.ID
	Day     uint16 // Checkpoint.Day when the vehicle's newest sample was stored
	State   []byte // packed; empty if the vehicle was forgotten
}

func AppendEntry(b []byte, e Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(e.Vehicle)))
	b = append(b, e.Vehicle...)
	b = binary.LittleEndian.AppendUint16(b, e.Day)
	b = binary.AppendUvarint(b, uint64(len(e.State)))
	return append(b, e.State...)
}

// DecodeEntries yields entries whose State shares memory with b.
func DecodeEntries(b []byte, yield func(Entry) error) error {
	for r := (codec.Reader{Rest: b}); len(r.Rest) > 0; {
		id, day, state := r.Counted(), r.Bytes(2), r.Counted()
		vid, err := vehicle.ParseReportingID(string(id))
		if r.Short || err != nil {
			return codec.ErrDamaged
		}
		if err := yield(Entry{Vehicle: vid, Day: binary.LittleEndian.Uint16(day), State: state}); err != nil {
			return err
		}
	}
	return nil
}

func AppendAnswer(b []byte, id vehicle.ID, a *Answer) []byte {
	b = binary.AppendUvarint(b, uint64(len(id)))
	b = append(b, id...)
	flags := byte(a.Driving.State)<<3 | byte(a.Throttle.System)<<1
	if a.Driving.NotDriving {
		flags |= 1
	}
	b = append(b, flags)
	for _, t := range [...]signal.UnixMilli{
		a.Driving.Time, a.Throttle.Time - a.Driving.Time, a.JamSince, a.AnomalySince,
	} {
		b = binary.AppendVarint(b, int64(t))
	}
	return b
}

func DecodeAnswers(b []byte, put func(vehicle.ID, *Answer)) error {
	for r := (codec.Reader{Rest: b}); len(r.Rest) > 0; {
		id, flags := vehicle.ID(r.Counted()), r.Byte()
		var times [4]signal.UnixMilli
		for i := range times {
			times[i] = signal.UnixMilli(r.Varint())
		}
		if r.Short || vehicle.CheckID(string(id)) != nil {
			return codec.ErrDamaged
		}
		var a Answer
		a.Driving = vehicle.DrivingVerdict{
			State: driving.State(flags >> 3), NotDriving: flags&1 != 0, Time: times[0],
		}
		a.Throttle = vehicle.ThrottleVerdict{System: throttle.System(flags >> 1 & 3), Time: times[0] + times[1]}
		a.JamSince, a.AnomalySince = times[2], times[3]
		put(id, &a)
	}
	return nil
}

// ClearOld removes the pieces of dropped checkpoints. With all, it also removes all other pieces
// before c, even of a failed Save. If upTo is not 0, pieces stored later stay: another owner may
// have stored them.
func (c Checkpoint) ClearOld(ctx context.Context, r Records, upTo uint64, p int, dropped []Checkpoint, all bool) error {
	var own [KeptCheckpoints]int // pieces of c, by slot
	own[c.Number%KeptCheckpoints] = c.Pieces
	var gone []Record
	for _, d := range dropped {
		for piece := own[d.Number%KeptCheckpoints]; piece < d.Pieces; piece++ {
			gone = append(gone, Record{Subject: d.Subject(p, piece), Seq: upTo})
		}
	}
	err := r.Remove(ctx, codec.States, gone)
	for slot := 0; all && err == nil && slot < KeptCheckpoints; slot++ {
		err = c.clearSlot(ctx, r, p, slot, own[slot])
	}
	return err
}

// clearSlot finds pieces up to the first missing one, so it removes the last piece first: an
// interruption leaves none behind a missing one.
func (c Checkpoint) clearSlot(ctx context.Context, r Records, p, slot, from int) error {
	var found []Record
	for piece := from; ; piece++ {
		subject := codec.ChunkSubject(p, slot, piece)
		rec, err := r.Last(ctx, codec.States, subject)
		number, _ := binary.Uvarint(rec.Body)
		if rec.Seq == 0 && err != nil {
			return err
		}
		if rec.Seq == 0 || number > c.Number || codec.IsNewer(err) {
			break
		}
		found = append(found, Record{Subject: subject, Seq: rec.Seq}) // also if it is damaged
	}
	slices.Reverse(found)
	return r.Remove(ctx, codec.States, found)
}

// AddCheckpoint returns the checkpoints that are kept and dropped once c is stored. It keeps those
// that c needs, from c.First on. In case a piece of them is damaged, it also keeps the one before,
// with all that this one needs. With alone, it keeps only c. Checkpoints with the number of c or a
// later one are damaged, and dropped: the owner has read one before them.
func AddCheckpoint(all []Checkpoint, c Checkpoint, alone bool) (kept, dropped []Checkpoint) {
	first := c.First
	older, _ := slices.BinarySearchFunc(all, c.First, func(is Checkpoint, n uint64) int { return cmp.Compare(is.Number, n) })
	if alone {
		first = c.Number
	} else if older > 0 {
		first = all[older-1].First
	}
	for _, is := range all {
		if is.Number < first || is.Number >= c.Number {
			dropped = append(dropped, is)
		} else {
			kept = append(kept, is)
		}
	}
	return append(kept, c), dropped
}
