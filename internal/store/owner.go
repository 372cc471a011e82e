package store

import (
	"context"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

type Owner interface {
	// Reply may be called concurrently.
	Reply(ctx context.Context, q *Question) (Reply, error)
}

const (
	AskState      = "state"      // for the packed state of Vehicle
	AskDrop       = "drop"       // to drop the state of Vehicle, which is forgotten
	AskDropAll    = "drop all"   // to drop those of all forgotten vehicles
	AskTombstones = "tombstones" // to have all tombstones that are stored
	AskAnswers    = "answers"    // for a part of all answers, from From on
	AskStates     = "states"     // for a part of all states, from From on
	AskRestore    = "restore"    // to have the states in Entries, unless it has newer ones
	AskCheckpoint = "checkpoint" // to store all states in one checkpoint
	AskErase      = "erase"      // to do that, without markers that may go, and to remove all older ones
)

type Question struct {
	Kind    string     `json:"kind"`
	Vehicle vehicle.ID `json:"vehicle,omitempty"`
	From    int        `json:"from,omitempty"` // Next of the reply before
	Entries []byte     `json:"entries,omitempty"`
}

type Reply struct {
	Owner      uint64     `json:"owner"` // a random number of the owner since it took the partition
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
	Driving  vehicle.DrivingVerdict
	Throttle vehicle.ThrottleVerdict
	// 0 is unknown, as with a trouble code.
	JamSince, AnomalySince vehicle.UnixMilli
}

func AnswerOf(s *vehicle.State) Answer {
	a := Answer{Driving: s.Driving(), Throttle: s.Throttle(), JamSince: s.Traffic.Changed}
	if s.FaultCode == (vehicle.TroubleCode{}) {
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
