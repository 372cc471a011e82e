package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// hostileText has escape sequences of a terminal and a change of the text direction.
const hostileText = "\x1b]0;pwned\x07\x1b[31mEve\n\u202eevil<script>alert(1)</script>"

// hostile returns records that no service stores, and what the error must contain.
func hostile() map[string]struct {
	subject, says string
	body          any
} {
	now := time.Now().UTC()
	hash := [sha256.Size]byte{7}
	token := func(change func(*credentialRecord)) credentialRecord {
		r := credentialRecord{
			Kind: access.TokenKind, Name: "cstidHOSTILE00000", Hash: hash, Created: now,
			Developer: "Ada", Operations: access.AllOperations, Vehicles: grantedRecord{All: true},
		}
		change(&r)
		return r
	}
	manyKeys := vidKeysRecord{}
	for i := range maxVIDKeys + 1 {
		manyKeys.Keys = append(manyKeys.Keys, bytes.Repeat([]byte{byte(i)}, vidKeyBytes))
	}
	const subject = "token.cstidHOSTILE00000"
	return map[string]struct {
		subject, says string
		body          any
	}{
		"an operator called admin": {"operator.admin", "operator: the name admin is", credentialRecord{
			Kind: access.OperatorKind, Name: "admin", Hash: hash, Created: now,
		}},
		"an operator called Admin": {"operator.Admin", "operator: the name admin is", credentialRecord{
			Kind: access.OperatorKind, Name: "Admin", Hash: hash, Created: now,
		}},
		"an operator with vehicles": {"operator.eve", "operator: an operator has no vehicles", credentialRecord{
			Kind: access.OperatorKind, Name: "eve", Hash: hash, Created: now, Vehicles: grantedRecord{All: true},
		}},
		"a source that asks": {"source.eve", "source: only a token has", credentialRecord{
			Kind: access.SourceKind, Name: "eve", Hash: hash, Created: now, Operations: access.AllOperations,
		}},
		"a strict token": {subject, "token: only a source can be strict, send on change or have a format", token(
			func(r *credentialRecord) { r.Strict = true },
		)},
		"a rate that is none": {subject, "token: a rate is", token(func(r *credentialRecord) { r.Rate = "5/day" })},
		"a developer's name": {subject, "token: a developer's name must consist of printable", token(
			func(r *credentialRecord) { r.Developer = hostileText },
		)},
		"a developer without name": {subject, "token: a developer's name must have", token(
			func(r *credentialRecord) { r.Developer = "" },
		)},
		"operations beyond all": {subject, "token: a token needs at least one operation", token(
			func(r *credentialRecord) { r.Operations = 0xff },
		)},
		"no operation": {subject, "token: a token needs at least one operation", token(
			func(r *credentialRecord) { r.Operations = 0 },
		)},
		"a token's ID": {"token.cstidX", "token: a token's ID is", token(
			func(r *credentialRecord) { r.Name = "cstidX" },
		)},
		"a vid": {subject, "token: ", token(
			func(r *credentialRecord) { r.Vehicles = grantedRecord{IDs: []vehicle.ID{hostileText}} },
		)},
		"a sandbox with real cars": {subject, "token: a sandbox token sees", token(
			func(r *credentialRecord) { r.Kind = access.SandboxKind },
		)},
		"a replaced secret for good": {subject, "token: a replaced secret stays valid for at most", token(
			func(r *credentialRecord) { r.Earlier = []access.Earlier{{Hash: hash, Until: now.Add(1e6 * time.Hour)}} },
		)},
		"many replaced secrets": {subject, "token: at most 16 replaced secrets", token(
			func(r *credentialRecord) { r.Earlier = make([]access.Earlier, 17) },
		)},
		"many keys of tombstones": {codec.VIDKeysSubject, "tombstonekey: at most 16 installations", manyKeys},
		"a tombstone of no time": {
			codec.TombstoneSubject(access.VehicleHash(hash)), "tombstone: the time of forgetting is missing, or",
			tombstoneRecord{Vehicle: hash},
		},
		"a vid of a set": {"tokenset.cstidHOSTILE00000.0", "set of vehicles: ", setRecord{
			Set: "x", IDs: []vehicle.ID{hostileText},
		}},
	}
}

// Intact and authentic records that no service writes are refused by a restore, and but for usage
// by a start, in one line without their content.
func TestHostileRecordsAreRefused(t *testing.T) {
	k := runRecordStore(t, newMemory(t), Config{})
	records := hostile()
	usage := records["a rate that is none"]
	usage.subject, usage.says, usage.body = "tokenuse.cstidHOSTILE00000.NODE", "usage: a number of calls", usageRecord{
		Calls: maxCalls + 1,
	}
	records["many calls"] = usage
	usage.subject, usage.says, usage.body = "tokenuse.eve.NODE", "usage: a token's ID", usageRecord{}
	records["usage of no token"] = usage
	for name, r := range records {
		body, err := json.Marshal(r.body)
		testkit.NoError(t, err)
		is := Record{Subject: r.subject, Body: body}
		err = Sets{}.Check(is)
		u, unfit := errors.AsType[Unfit](err)
		text := fmt.Sprintf("%s: %v", u.Kind, u.Err)
		if !unfit || !errors.Is(err, codec.ErrDamaged) || !strings.HasPrefix(text, r.says) {
			t.Errorf("%s: got error %v, want one that says %s", name, err, r.says)
		}
		if strings.ContainsAny(text, "\n\x1b\u202e") || strings.Contains(text, "evil") || strings.Contains(text, "HOSTILE") {
			t.Errorf("%s: got the error %q, want it without the content of the record", name, text)
		}
		if r.subject[:len("tokenuse")] == "tokenuse" {
			continue // a start skips usage
		}
		err = k.apply(is, Sets{})
		if !errors.Is(err, codec.ErrDamaged) || !strings.Contains(err.Error(), r.says) ||
			strings.Contains(err.Error(), "evil") {
			t.Errorf("%s, stored: got error %v, want one that contains %q", name, err, r.says)
		}
	}
	if n := k.tables.Tokens.Len() + k.tables.Sources.Len() + k.tables.Operators.Len(); n != 0 {
		t.Errorf("%d hostile credentials are valid, want none", n)
	}
}
