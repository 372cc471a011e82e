package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// A few vehicles of a token or a source are listed in its record itself. More are listed in separate
// set records, which precede the record in the same atomic batch: the vids of [access.MaxNamed]
// vehicles can have more bytes than one NATS message.

// grantedRecord is the part of a credential's record that says which vehicles the credential
// covers.
type grantedRecord struct {
	All  bool         `json:"all,omitempty"`
	IDs  []vehicle.ID `json:"ids,omitempty"`
	Set  string       `json:"set,omitempty"`  // random mark that all its set records contain; "" if there are none
	Sets int          `json:"sets,omitempty"` // number of set records
}

// setRecord lists a part of the vehicles of a credential.
type setRecord struct {
	Set string       `json:"set"` // mark of the set; "" if the part was emptied, and no record refers to it
	IDs []vehicle.ID `json:"ids"`
}

const (
	// maxInlineIDs is the maximum number of vehicles in the credential's record itself.
	maxInlineIDs = 500
	// maxSetBytes is the maximum total size of the vehicle ids in one set record, in bytes.
	maxSetBytes = 400 << 10
)

// packVehicles returns the part of a credential's record that grants the vehicles v, and the writes
// of the set records, which must be stored in the same batch; nil for at most maxInlineIDs
// vehicles. The subject of a set record consists of prefix, owner (the name of the credential) and
// a number.
func packVehicles(prefix, owner string, v access.Vehicles) (_ grantedRecord, writes []Write, err error) {
	if v.All() {
		return grantedRecord{All: true}, nil, nil
	}
	if v.Len() <= maxInlineIDs {
		return grantedRecord{IDs: slices.Collect(v.Sorted())}, nil, nil
	}
	parts, bytes := [][]vehicle.ID{nil}, 0
	for id := range v.Sorted() {
		if bytes += len(id) + 3; bytes > maxSetBytes {
			parts, bytes = append(parts, nil), len(id)+3
		}
		last := &parts[len(parts)-1]
		*last = append(*last, id)
	}
	g := grantedRecord{Set: rand.Text(), Sets: len(parts)}
	for n, ids := range parts {
		if writes, err = appendJSON(writes, setSubject(prefix, owner, n), setRecord{g.Set, ids}); err != nil {
			return g, nil, err
		}
	}
	return g, writes, nil
}

func setSubject(prefix, owner string, n int) string {
	return prefix + "." + owner + "." + strconv.Itoa(n)
}

// check returns an error if no service can have granted g to a credential of the given kind. It
// does not check the vehicles in set records; decodeSet does.
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

// decodeSet decodes a set record, and checks the vehicle ids in it.
func decodeSet(body []byte) (part setRecord, err error) {
	if json.Unmarshal(body, &part) != nil {
		return part, fmt.Errorf("%w: a set of vehicles", codec.ErrDamaged)
	}
	if err := checkIDs(part.IDs); err != nil {
		return part, unfit{"set of vehicles", err}
	}
	return part, nil
}

// isEmptied reports whether r is an empty set record. A set record is emptied when its credential
// no longer uses it.
func isEmptied(r Record) bool {
	if !codec.IsSet(r.Subject) {
		return false
	}
	part, err := decodeSet(r.Body)
	return err == nil && part.Set == ""
}

// errSetChanged means that the set records of a credential were replaced while they were read.
var errSetChanged = fmt.Errorf("%w: the set of vehicles is being changed", ErrConflict)

// readVehicles returns the vehicles that g grants, including those in set records, whose subjects
// begin with prefix and owner (see packVehicles). If the set records were replaced while they were
// read, readVehicles returns errSetChanged.
func readVehicles(
	ctx context.Context, from Records, stream, prefix, owner string, g grantedRecord,
) (access.Vehicles, error) {
	if g.All {
		return access.AllVehicles(), nil
	}
	ids := g.IDs
	for n := range g.Sets {
		subject := setSubject(prefix, owner, n)
		r, err := from.Last(ctx, stream, subject)
		if err != nil {
			return access.Vehicles{}, err
		}
		part, err := decodeSet(r.Body)
		if err != nil {
			return access.Vehicles{}, err
		}
		if part.Set != g.Set {
			return access.Vehicles{}, errSetChanged
		}
		ids = append(ids, part.IDs...)
	}
	return access.VehicleSet(ids...), nil
}

// sets collects the set records of a feed or a backup, by the subject of the credential's record,
// which arrives after them.
type sets map[string]*setParts

type setParts struct {
	mark  string
	parts map[int][]vehicle.ID
	owner func(access.Vehicles) // applies the record that refers to the set; nil until that record has arrived
	need  int
}

// withMark returns the set records that were collected so far for the credential whose record has
// the subject owner. If they have another mark (see setsSeen) than mark, withMark begins an empty
// collection in their place.
func (s sets) withMark(owner, mark string) *setParts {
	p := s[owner]
	if p == nil || p.mark != mark {
		p = &setParts{mark: mark, parts: make(map[int][]vehicle.ID)}
		s[owner] = p
	}
	return p
}

// record passes the vehicles that g grants to apply. owner is the subject of the credential's
// record. Before the feed has caught up, some set records of a large grant may be missing. In that
// case, apply first receives no vehicles, and is called again with all vehicles when all set
// records have arrived.
func (s sets) record(owner string, g grantedRecord, apply func(access.Vehicles)) {
	switch {
	case g.All:
		delete(s, owner)
		apply(access.AllVehicles())
	case g.Sets == 0:
		delete(s, owner)
		apply(access.VehicleSet(g.IDs...))
	default:
		p := s.withMark(owner, g.Set)
		p.owner, p.need = apply, g.Sets
		if !s.complete(owner) {
			apply(access.Vehicles{})
		}
	}
}

// complete reports whether the credential's record, with the subject owner, and all its set records
// have arrived. If so, it passes the vehicles to the apply that record received.
func (s sets) complete(owner string) bool {
	p := s[owner]
	if p.owner == nil || len(p.parts) < p.need {
		return false
	}
	var ids []vehicle.ID
	for _, part := range p.parts {
		ids = append(ids, part...)
	}
	p.owner(access.VehicleSet(ids...))
	delete(s, owner)
	return true
}

// apply adds a set record, which lists a part of the vehicles of a credential. Its subject ends in
// the name of the credential, a dot, and the number of the part. If the number or the record is
// invalid, apply returns an error that matches [codec.ErrDamaged], and adds nothing.
func (s sets) apply(r Record) error {
	prefix, rest, _ := strings.Cut(r.Subject, "set.")
	name, number, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		return codec.ErrDamaged
	}
	part, err := decodeSet(r.Body)
	if err != nil || part.Set == "" { // emptied
		return err
	}
	owner := prefix + "." + name
	s.withMark(owner, part.Set).parts[n] = part.IDs
	s.complete(owner)
	return nil
}
