package storetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/testkit"
	"example.org/carstate/internal/vehicle"
)

// BackupOf returns the bytes of a backup of a node.
func BackupOf(t testing.TB, n *Node) []byte {
	t.Helper()
	return backupOf(t, n.RecordStore)
}

func backupOf(t testing.TB, k *store.RecordStore) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := k.Backup(t.Context(), &b, "v-test")
	testkit.NoError(t, err)
	return b.Bytes()
}

// started starts a node with a new data directory.
func started(t *testing.T, open Open, c store.Config) *Node {
	t.Helper()
	c.DataDir = t.TempDir()
	return Start(t, open(t, c), c)
}

// RestoreInto merges a backup of any origin into a node, and returns the report. It fails the test
// if the restore fails or reports progress of less than 1 record or of more than the total.
func RestoreInto(t testing.TB, n *Node, backup []byte) access.RestoreReport {
	t.Helper()
	return restoreInto(t, n.RecordStore, backup)
}

func restoreInto(t testing.TB, k *store.RecordStore, backup []byte) access.RestoreReport {
	t.Helper()
	progress := func(done, total int) {
		if done < 1 || done > total {
			t.Errorf("progress reported %d of %d records", done, total)
		}
	}
	trust := access.BackupTrust{Anybody: true}
	unaudited := func(_ access.BackupInfo, merge func() error) error { return merge() }
	report, err := k.Restore(t.Context(), bytes.NewReader(backup), trust, unaudited, progress)
	testkit.NoError(t, err)
	return report
}

// restoreIntoEmpty checks that a backup can be restored into an empty service with another number
// of partitions, and that a second restore of the same backup changes nothing.
func restoreIntoEmpty(t *testing.T, open Open) {
	a := started(t, open, store.Config{})
	ids := a.GrantAll(t)
	a.EndOf(t, access.TokenKind, ids[1])
	var cars []vehicle.ID
	for i := range 1500 {
		cars = append(cars, vehicle.ID(fmt.Sprintf("Other%04d", i)))
	}
	a.Drive(t, 1000, cars...)
	a.Drive(t, 2000, cars[:100]...)
	a.MustForget(t, cars[0])
	backup := BackupOf(t, a)
	info, err := store.CheckBackup(bytes.NewReader(backup))
	if err != nil || info.Version != "v-test" || info.Partitions != a.Partitions() ||
		info.Kinds["state"] != 1499 || info.Kinds["token"] != 4 || info.Kinds["tombstone"] != 1 {
		t.Fatalf("CheckBackup: got %+v, error %v", info, err)
	}
	if bytes.Contains(backup, []byte(cars[0])) {
		t.Error("the backup names a forgotten vehicle")
	}

	b := started(t, open, store.Config{Partitions: 7})
	report := RestoreInto(t, b, backup)
	if n := report.Kinds["state"]; n != (access.RestoreCount{Restored: 1499}) {
		t.Errorf("states: got %+v, want 1499 restored", n)
	}
	for i, id := range cars {
		want, had := a.StateOf(t, id)
		if got, ok := b.StateOf(t, id); ok != had || got != want || ok != (i != 0) {
			t.Fatalf("%s: got found %v, state %+v; want found %v, state %+v", id, ok, got, had, want)
		}
	}
	if len(b.Tables.Tokens.All()) != 4 {
		t.Errorf("got %d tokens, want 4", len(b.Tables.Tokens.All()))
	}
	for _, kind := range []access.Kind{access.TokenKind, access.SourceKind} {
		for _, want := range a.Tables.Of(kind).All() {
			got, ok := b.Tables.Of(kind).Get(want.Name)
			if !ok || got.Hash != want.Hash || got.Vehicles.Len() != want.Vehicles.Len() ||
				got.Vehicles.All() != want.Vehicles.All() || got.Ended.IsZero() != want.Ended.IsZero() {
				t.Errorf("%s %s: got %+v, want %+v", kind, want.Name, got, want)
			}
		}
	}
	if !b.Forgotten().Has(cars[0]) {
		t.Error("a forgotten vehicle is not forgotten after the restore")
	}
	// Restoring the same backup again changes nothing.
	for kind, n := range RestoreInto(t, b, backup).Kinds {
		if n.Restored != 0 {
			t.Errorf("the second restore of %s: got %+v, want nothing restored", kind, n)
		}
	}
}

// restoreAuthenticates checks which backups a restore accepts. It accepts backups of the service
// itself. It accepts backups of another service if that service's key is given. If the operator
// trusts any origin, it also accepts backups that no known key authenticates.
func restoreAuthenticates(t *testing.T, open Open) {
	a, b := started(t, open, store.Config{}), started(t, open, store.Config{})
	a.GrantAll(t)
	backup := BackupOf(t, a)
	key, err := a.BackupKey(t.Context())
	testkit.NoError(t, err)
	if bytes.Contains(backup, []byte(key)) {
		t.Error("the backup contains the key that authenticates it")
	}
	forged := bytes.Clone(backup)
	forged[len(forged)-1] ^= 1
	other, _ := access.NewSecret(access.BackupKind)
	anyone := access.BackupTrust{Anybody: true}
	for what, c := range map[string]struct {
		into          *Node
		file          []byte
		trust         access.BackupTrust
		taken, proven bool
	}{
		"no key":                 {into: b, file: backup},
		"another key":            {into: b, file: backup, trust: access.BackupTrust{Key: other}},
		"a changed file":         {into: b, file: forged, trust: access.BackupTrust{Key: key}},
		"a changed file of ours": {into: a, file: forged},
		"the key":                {into: b, file: backup, trust: access.BackupTrust{Key: key}, taken: true, proven: true},
		"our own, another key":   {into: a, file: backup, trust: access.BackupTrust{Key: other}, taken: true, proven: true},
		"our own":                {into: a, file: backup, taken: true, proven: true},
		"any origin":             {into: b, file: forged, trust: anyone, taken: true},
		"any origin, proven":     {into: a, file: backup, trust: anyone, taken: true, proven: true},
	} {
		audited := false
		audit := func(info access.BackupInfo, merge func() error) error {
			audited = true
			return merge()
		}
		report, err := c.into.Restore(t.Context(), bytes.NewReader(c.file), c.trust, audit, func(int, int) {})
		if audited != c.taken || (err == nil) != c.taken || err == nil && report.Backup.Authenticated != c.proven {
			t.Errorf("%s: got error %v, authenticated %t, audited %t; want success %t, authenticated %t",
				what, err, report.Backup.Authenticated, audited, c.taken, c.proven)
		}
		if err != nil && !c.into.BadBackup(err) {
			t.Errorf("%s: BadBackup is false for %v", what, err)
		}
	}
}

// restoreMerges restores a backup of one service into another. The two services were equal once,
// and each has changed since. It checks that the newer of two states is kept, that a vehicle that
// was forgotten on either side is forgotten and in no grant, that a vehicle that was allowed again
// has no state, and that a token that was revoked on either side is revoked. It also checks that
// Bury forgets the vehicle of a receipt.
func restoreMerges(t *testing.T, open Open) {
	a := started(t, open, store.Config{})
	a.Drive(t, 1000, "Newer", "Older", "GoneThere", "GoneHere", "GoneLater", "Back")
	revokedHere, revokedThere := a.Token(t, access.AllVehicles()), a.Token(t, access.AllVehicles())
	granted := a.Token(t, access.VehicleSet("Older", "GoneThere", "GoneHere"))
	base := BackupOf(t, a)

	// b begins as a copy of a. After the restore, it has the tombstone keys of both services.
	b := started(t, open, store.Config{})
	RestoreInto(t, b, base)
	b.Drive(t, 3000, "Newer")
	b.MustForget(t, "GoneHere")
	b.MustForget(t, "Back")
	allow(t, b.RecordStore, "Back")
	b.EndOf(t, access.TokenKind, revokedHere.Name)

	a.Drive(t, 2000, "Newer", "Older")
	a.MustForget(t, "GoneThere")
	a.EndOf(t, access.TokenKind, revokedThere.Name)
	backup := BackupOf(t, a)
	receipt := a.MustForget(t, "GoneLater") // not in the backup

	if n, err := b.Bury(t.Context(), []access.ForgetReceipt{receipt, receipt}); n != 1 || err != nil {
		t.Errorf("Bury: got %d, error %v; want 1", n, err)
	}
	report := RestoreInto(t, b, backup)
	if n := report.Kinds["state"]; n != (access.RestoreCount{Restored: 1, Kept: 1, Forgotten: 3}) {
		t.Errorf("states: got %+v, want 1 restored, 1 kept, 3 forgotten", n)
	}
	for id, at := range map[vehicle.ID]vehicle.UnixMilli{
		"Newer": 3000, "Older": 2000, "GoneThere": 0, "GoneHere": 0, "GoneLater": 0, "Back": 0,
	} {
		if s, ok := b.StateOf(t, id); s.Time != at || ok != (at != 0) {
			t.Errorf("%s: got found %v, time %d; want time %d", id, ok, s.Time, at)
		}
	}
	for id, gone := range map[vehicle.ID]bool{
		"Newer": false, "GoneThere": true, "GoneHere": true, "GoneLater": true, "Back": false,
	} {
		if b.Forgotten().Has(id) != gone {
			t.Errorf("%s: want forgotten %v", id, gone)
		}
	}
	for _, tok := range []access.Credential{revokedHere, revokedThere} {
		if g, _ := b.Tables.Tokens.Get(tok.Name); g == nil || g.Ended.IsZero() {
			t.Errorf("a revoked token is not revoked: got %+v", g)
		}
	}
	if g, _ := b.Tables.Tokens.Get(granted.Name); g == nil || g.Vehicles.Len() != 1 || !g.Vehicles.Include("Older") {
		t.Errorf("got %+v, want a grant without the forgotten vehicles", g)
	}
	testkit.Await(
		t, "the tables follow",
		func() bool { return b.Knows("Older") && !b.Knows("GoneThere") && !b.Knows("GoneLater") },
	)
}

// restoreOperators checks that a restore adds missing operators. It also checks that a restore
// removes an operator that was removed in the backup, unless the secret in the backup differs from
// the service's own. An operator that the service has removed must stay removed.
func restoreOperators(t *testing.T, open Open) {
	a, b := started(t, open, store.Config{}), started(t, open, store.Config{})
	hash := bytes.Repeat([]byte{7}, len(access.Hash{}))
	put := func(n *Node, name string, hash []byte, removed bool) {
		o := access.Credential{Kind: access.OperatorKind, Name: name, Hash: access.Hash(hash), Created: time.Now()}
		if removed {
			o.Ended = time.Now()
		}
		testkit.NoError(t, n.Create(t.Context(), o))
	}
	put(a, "new", hash, false)
	put(a, "removed-there", hash, true)
	put(b, "removed-there", hash, false)
	put(a, "removed-here", hash, false)
	put(b, "removed-here", hash, true)
	put(a, "another", hash, true)
	put(b, "another", bytes.Repeat([]byte{8}, len(hash)), false)
	report := RestoreInto(t, b, BackupOf(t, a))
	if n := report.Kinds["operator"]; n != (access.RestoreCount{Restored: 2, Kept: 2}) {
		t.Errorf("operators: got %+v, want 2 restored, 2 kept", n)
	}
	for name, removed := range map[string]bool{
		"new": false, "removed-there": true, "removed-here": true, "another": false,
	} {
		g, ok := b.Tables.Operators.Get(name)
		if !ok || g.Ended.IsZero() == removed {
			t.Errorf("%s: found %v, got %+v; want removed %v", name, ok, g, removed)
		}
	}
}

// backupWhileServing checks that each backup is intact while records change.
func backupWhileServing(t *testing.T, open Open) {
	a := started(t, open, store.Config{})
	a.GrantAll(t)
	a.Drive(t, 1000, "Car1", "Car2")
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	id := a.Tables.Tokens.All()[2].Name
	busy.Go(func() { // repeatedly replaces a large set
		for ctx.Err() == nil {
			if _, err := a.Update(
				ctx, access.TokenKind, id, func(*access.Credential) error { return nil },
			); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	part := Take(t, a.Engine, 0)
	busy.Go(func() {
		for i := int64(1); ctx.Err() == nil; i++ {
			s := vehicle.Observe(vehicle.State{}, Speed("X", i, 50))
			err := part.Commit(ctx, 0, Packed(map[vehicle.ID]*vehicle.State{"A": &s, "B": &s}), false)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for range 10 {
		info, err := store.CheckBackup(bytes.NewReader(BackupOf(t, a)))
		if err != nil || info.Kinds["token"] < 4 {
			t.Errorf("CheckBackup: got %+v, error %v; want at least 4 tokens", info, err)
		}
	}
	stop()
	busy.Wait()
}

// backupWithoutMalformedRoads stores a road record with a valid checksum but without a valid
// profile. It checks that maps and backups leave the record out.
func backupWithoutMalformedRoads(t *testing.T, open Open) {
	n := started(t, open, store.Config{})
	subject := codec.RoadPrefix + road.Tile(0x47ab511000000000).String() // an arbitrary tile
	storeRecord(t, n.Engine, codec.Roads, subject, []byte("no profile"))
	ctx, cancel := context.WithCancel(t.Context())
	n.KeepRoads(ctx, &n.Roads, false, cancel)
	if n.Roads.Len() != 0 {
		t.Errorf("the map has %d stretches, want none", n.Roads.Len())
	}
	if info, err := store.CheckBackup(bytes.NewReader(BackupOf(t, n))); err != nil || info.Kinds["road"] != 0 {
		t.Errorf("CheckBackup: got %+v, error %v; want no roads", info, err)
	}
}
