package derive

import (
	"context"
	"errors"
	"slices"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

func (c *Config) SetBucketBytes(n int) { c.bucketBytes, c.pieceBytes = n, n }

var ErrInjected = errors.New("the disk is on fire")

type Packed map[vehicle.ID]string

func Log(part store.Partition) (all []store.Group, err error) {
	_, newest := part.Stored()
	var g store.Group
	for err = part.Seek(context.Background(), store.Checkpoint{}); err == nil && g.Seq < newest; {
		g, err = part.Next(context.Background())
		all = append(all, store.Group{Seq: g.Seq, Stored: g.Stored, Samples: slices.Clone(g.Samples)})
	}
	return all, err
}

// Plain folds groups up to seq and resets states from the future as apply says.
func Plain(groups []store.Group, seq uint64, forgotten func(vehicle.ID, uint64) bool) Packed {
	states := make(map[vehicle.ID]vehicle.State)
	for _, g := range groups {
		if g.Seq > seq {
			break
		}
		for _, x := range g.Samples {
			if forgotten(x.Vehicle, g.Seq) {
				continue
			}
			s, stored := states[x.Vehicle], signal.At(g.Stored)
			if x.Time.Sub(stored).Abs() <= vehicle.MaxAhead && s.Time.Sub(stored) > vehicle.MaxAhead {
				s = vehicle.State{}
			}
			x.Stored = stored
			s.Fold(&x)
			states[x.Vehicle] = s
		}
	}
	all := make(Packed)
	for id, s := range states {
		if s.Time != 0 {
			all[id] = string(codec.AppendState(nil, &s))
		}
	}
	return all
}

// Spoil makes a checkpoint of p unreadable, if it has pieces.
func Spoil(e store.Engine, p int, c store.Checkpoint) error {
	if c.Pieces == 0 {
		return nil
	}
	subject := c.Subject(p, c.Pieces-1)
	spoilt := codec.Seal(subject, []byte{0, 1, 1, 1})
	_, err := e.Store(context.Background(), codec.States, []store.Write{{Subject: subject, Record: spoilt}})
	return err
}
