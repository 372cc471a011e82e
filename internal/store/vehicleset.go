package store

import (
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// The vids of [access.MaxNamed] vehicles can exceed one NATS message, so a grant of more than
// maxInlineIDs is in set records, which precede the credential in the same batch.

type grantedRecord struct {
	All  bool         `json:"all,omitzero"`
	IDs  []vehicle.ID `json:"ids,omitempty"`
	Set  string       `json:"set,omitzero"` // random name, in all its set records; "" without them
	Sets int          `json:"sets,omitzero"`
}

type setRecord struct {
	Set string       `json:"set"` // "" if the part was emptied, and no record refers to it
	IDs []vehicle.ID `json:"ids"`
}

const (
	maxInlineIDs = 500
	maxSetIDs    = 3000 // A vid has at most 256 bytes, and a NATS message 1 MB.
)

func packVehicles(owner string, v access.Vehicles) (_ grantedRecord, writes []Write) {
	if v.All() {
		return grantedRecord{All: true}, nil
	}
	if v.Len() <= maxInlineIDs {
		return grantedRecord{IDs: v.Sorted()}, nil
	}
	g := grantedRecord{Set: rand.Text()}
	for ids := range slices.Chunk(v.Sorted(), maxSetIDs) {
		writes, _ = AppendJSON(writes, setSubject(owner, g.Sets), setRecord{g.Set, ids}) // cannot fail: only texts
		g.Sets++
	}
	return g, writes
}

func setSubject(owner string, n int) string {
	return strings.Replace(owner, ".", "set.", 1) + "." + strconv.Itoa(n)
}

func (g grantedRecord) check(kind access.Kind) error {
	switch {
	case kind == access.OperatorKind && (g.All || len(g.IDs) > 0 || g.Sets != 0):
		return errors.New("an operator has no vehicles of its own")
	case len(g.IDs) > maxInlineIDs, g.Sets < 0, g.Sets >= MaxBatch,
		g.All && (len(g.IDs) > 0 || g.Sets != 0), g.Sets > 0 && len(g.IDs) > 0:
		return errors.New("its list of vehicles is too long, or there are two lists")
	}
	if kind == access.SandboxKind {
		reserved := access.SandboxVehicles()
		foreign := func(id vehicle.ID) bool { return !reserved.Include(id) }
		if g.All || g.Sets != 0 || slices.ContainsFunc(g.IDs, foreign) {
			return errors.New("a sandbox token sees the reserved vehicles and no others")
		}
	}
	return checkIDs(g.IDs)
}

func checkIDs(ids []vehicle.ID) error {
	for _, id := range ids {
		if _, err := vehicle.ParseReportingID(string(id)); err != nil {
			return err
		}
	}
	return nil
}

func decodeSet(body []byte) (part setRecord, err error) {
	if json.Unmarshal(body, &part) != nil {
		return part, fmt.Errorf("%w: a set of vehicles", codec.ErrDamaged)
	}
	if err := checkIDs(part.IDs); err != nil {
		return part, Unfit{"set of vehicles", err}
	}
	return part, nil
}

func IsEmptied(r Record) bool {
	if !codec.IsSet(r.Subject) {
		return false
	}
	part, err := decodeSet(r.Body)
	return err == nil && part.Set == ""
}

var errSetChanged = fmt.Errorf("%w: the set of vehicles is being changed", ErrConflict)

func readCredential(ctx context.Context, from Records, is Record) (c access.Credential, g grantedRecord, err error) {
	if c, g, err = decodeCredential(is); err != nil {
		return c, g, err
	}
	sets := Sets{}
	for n := range g.Sets {
		r, err := from.Last(ctx, codec.StreamOf(is.Subject), setSubject(is.Subject, n))
		if err == nil {
			err = sets.Apply(r)
		}
		if err != nil {
			return c, g, err
		}
	}
	if c.Vehicles = sets.take(is.Subject, g); g.Sets > 0 && c.Vehicles.Len() == 0 {
		err = errSetChanged
	}
	return c, g, err
}

// Sets has the set records of credentials to come, by their subject. A record that is replaced before
// its credential comes is dropped.
type Sets map[string]setRecord

func (s Sets) Apply(r Record) error {
	part, err := decodeSet(r.Body)
	if s[r.Subject] = part; part.Set == "" { // emptied
		delete(s, r.Subject)
	}
	return err
}

// Credential also returns the number of set records. If one is missing, c has no vehicles: it was
// replaced before a feed had caught up, so a newer credential follows.
func (s Sets) Credential(r Record) (c access.Credential, sets int, err error) {
	c, granted, err := decodeCredential(r)
	if err == nil {
		c.Vehicles = s.take(r.Subject, granted)
	}
	return c, granted.Sets, err
}

func (s Sets) take(owner string, g grantedRecord) access.Vehicles {
	ids, missing := g.IDs, false
	for n := range g.Sets {
		part := s[setSubject(owner, n)]
		delete(s, setSubject(owner, n))
		ids, missing = append(ids, part.IDs...), missing || part.Set != g.Set
	}
	switch {
	case g.All:
		return access.AllVehicles()
	case missing:
		return access.Vehicles{}
	}
	return access.VehicleSet(ids...)
}
