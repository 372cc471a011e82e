package store

import (
	"crypto/sha256"
	"encoding/json/v2"
	"errors"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

// Each record is refused as damaged or newer, or usable afterwards.
func FuzzRecords(f *testing.F) {
	var hash [sha256.Size]byte
	seed := func(subject string, v any) {
		body, err := json.Marshal(v)
		testkit.NoError(f, err)
		f.Add(subject, body)
	}
	now := time.Unix(1e9, 0).UTC()
	seed("token.cstidAAAAAAAAAAA1", credentialRecord{
		Kind: access.TokenKind, Name: "cstidAAAAAAAAAAA1", Hash: hash, Developer: "Ada",
		Operations: access.AllOperations, Rate: "5/s", Created: now, Expires: now,
	})
	seed("token.cstidAAAAAAAAAAA2", map[string]any{"kind": access.TokenKind, "name": "cstidAAAAAAAAAAA2", "hash": hash[:3]})
	seed(
		"token.cstidAAAAAAAAAAA3",
		credentialRecord{Kind: access.SandboxKind, Name: "cstidAAAAAAAAAAA3", Hash: hash, Rate: "5/d"},
	)
	seed("source.ada", credentialRecord{Kind: access.OperatorKind, Name: "ada", Hash: hash})
	seed("tokenset.cstidAAAAAAAAAAA1.0", setRecord{})
	seed("tokenuse.cstidAAAAAAAAAAA1.total", usageRecord{Version: 1, LastUsed: now, LastRefused: now, Reason: 5})
	seed("tokenuse.cstidAAAAAAAAAAA1", usageRecord{LastUsed: now, Reason: 200})
	seed("source.gateway", credentialRecord{Kind: access.SourceKind, Name: "gateway", Hash: hash, Created: now})
	seed("sourceset.gateway.x", setRecord{})
	seed("operator.grace", credentialRecord{Kind: access.OperatorKind, Name: "grace", Hash: hash})
	seed(codec.TombstoneSubject(access.VehicleHash(hash)), map[string]any{"vehicle": hash, "forgotten": now})
	seed(codec.VIDKeysSubject, vidKeysRecord{Keys: [][]byte{make([]byte, vidKeyBytes)}})
	for _, r := range hostile() {
		seed(r.subject, r.body)
	}
	f.Fuzz(func(t *testing.T, subject string, body []byte) {
		var tables access.Tables
		k := NewRecordStore(newMemory(t), Config{}, &tables)
		for range 2 {
			if err := k.apply(
				Record{Subject: subject, Body: body}, Sets{},
			); err != nil && !errors.Is(err, codec.ErrDamaged) && !errors.Is(err, codec.ErrNewer) {
				t.Errorf("apply: got %v, want %v or %v", err, codec.ErrDamaged, codec.ErrNewer)
			}
		}
		for _, table := range []*access.Credentials{
			&tables.Tokens.Credentials, &tables.Sources.Credentials, &tables.Operators.Credentials,
		} {
			for _, g := range table.All() {
				_ = g.Usable(now)
				_ = g.Usage(now)
			}
		}
	})
}
