package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/backup"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func BackupOf(t testing.TB, s *backup.Service) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := s.Backup(t.Context(), &b, "v-test")
	testkit.NoError(t, err)
	return b.Bytes()
}

func started(t *testing.T, open Open, c store.Config) *Node {
	t.Helper()
	c.DataDir = t.TempDir()
	n := Start(t, open(t, c), c)
	n.config, n.open = c, func(t testing.TB) store.Engine { return open(t, c) }
	return n
}

// RestoreInto restores a backup of any origin. Progress is from 1 to the total.
func RestoreInto(t testing.TB, s *backup.Service, file []byte) access.RestoreReport {
	t.Helper()
	report, err := restore(t, s, file, access.RestoreOptions{Anybody: true})
	testkit.NoError(t, err)
	return report
}

func restore(
	t testing.TB, s *backup.Service, file []byte, options access.RestoreOptions,
) (access.RestoreReport, error) {
	t.Helper()
	progress := func(done, total int) {
		if done < 1 || done > total {
			t.Errorf("the progress: got %d of %d records, want 1 to all of them", done, total)
		}
	}
	unaudited := func(_ access.BackupInfo, merge func() error) error { return merge() }
	return s.Restore(t.Context(), bytes.NewReader(file), options, unaudited, progress)
}

// A backup is restored into an empty service with another number of partitions, and the two are
// equal.
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
	file := BackupOf(t, a.Service)
	info, err := backup.Check(bytes.NewReader(file))
	if err != nil || info.Version != "v-test" || info.Partitions != a.Partitions() ||
		info.Kinds["state"] != 1499 || info.Kinds["token"] != 4 || info.Kinds["tombstone"] != 1 {
		t.Fatalf("Check: got %+v, %v, want v-test, 1499 states, 4 tokens and 1 tombstone", info, err)
	}
	if bytes.Contains(file, []byte(cars[0])) {
		t.Errorf("the backup: got the forgotten vehicle %s, want it nowhere", cars[0])
	}

	b := started(t, open, store.Config{Partitions: 7})
	before := compared(t, b, file)
	report := RestoreInto(t, b.Service, file)
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
		t.Errorf("%s after the restore: got it known, want it forgotten", cars[0])
	}
	for kind, n := range compared(t, b, file) {
		all := info.Kinds[kind]
		got := [...]access.RestoreCount{before[kind], report.Kinds[kind], n}
		if want := [...]access.RestoreCount{{Missing: all}, {Restored: all}, {Equal: all}}; got != want {
			t.Errorf("%s: compared, restored and compared %+v, want %+v", kind, got, want)
		}
	}
}

func compared(t *testing.T, n *Node, file []byte) map[string]access.RestoreCount {
	t.Helper()
	report, err := restore(t, n.Service, file, access.RestoreOptions{Anybody: true, Compare: true})
	testkit.NoError(t, err)
	return report.Kinds
}

// A service with credentials of its own, or with all those of the backup, is refused and compared;
// an interrupted restore is continued; and receipts of vehicles that were forgotten after the
// backup take precedence.
func restoreOnlyEmpty(t *testing.T, open Open) {
	a := started(t, open, store.Config{})
	ids := a.GrantAll(t)
	a.Drive(t, 1000, "Same", "Newer", "Gone", "GoneLater")
	older := BackupOf(t, a.Service)
	a.Drive(t, 2000, "Newer", "Added")
	a.MustForget(t, "Gone")
	a.EndOf(t, access.TokenKind, ids[0])
	file := BackupOf(t, a.Service)
	receipt := a.MustForget(t, "GoneLater")

	for what, n := range map[string]*Node{"the same service": a, "another": started(t, open, store.Config{})} {
		n.Token(t, access.AllVehicles())
		if _, err := restore(t, n.Service, file, access.RestoreOptions{Anybody: true}); !errors.Is(err,
			access.ErrNotEmpty) {
			t.Errorf("%s: got %v, want %v", what, err, access.ErrNotEmpty)
		}
	}
	got := compared(t, a, older)
	if want := (access.RestoreCount{Equal: 1, Newer: 1, Forgotten: 2}); got["state"] != want {
		t.Errorf("states: got %+v, want %+v", got["state"], want)
	}
	if n := got["token"]; n.Different != 1 || n.Missing != 0 {
		t.Errorf("tokens: got %+v, want 1 different", n)
	}

	// b was interrupted: it has some of the states and one credential.
	b := started(t, open, store.Config{})
	few, _ := a.Tables.Sources.Get("few")
	testkit.NoError(t, b.Create(t.Context(), few.Credential))
	if n, err := b.Bury(t.Context(), []access.ForgetReceipt{receipt, receipt}); n != 1 || err != nil {
		t.Errorf("Bury: got %d, error %v; want 1", n, err)
	}
	b.Drive(t, 1000, "Same")
	report := RestoreInto(t, b.Service, file)
	if n := report.Kinds["state"]; n != (access.RestoreCount{Restored: 2, Kept: 1, Forgotten: 1}) {
		t.Errorf("states: got %+v, want 2 restored, 1 kept, 1 forgotten", n)
	}
	for id, at := range map[vehicle.ID]signal.UnixMilli{
		"Same": 1000, "Newer": 2000, "Added": 2000, "Gone": 0, "GoneLater": 0,
	} {
		if s, ok := b.StateOf(t, id); s.Time != at || ok != (at != 0) {
			t.Errorf("%s: got found %v, time %d; want time %d", id, ok, s.Time, at)
		}
		if gone := at == 0; b.Forgotten().Has(id) != gone {
			t.Errorf("%s: got forgotten %t, want %t", id, !gone, gone)
		}
	}
	if g, _ := b.Tables.Tokens.Get(ids[0]); g == nil || g.Ended.IsZero() {
		t.Errorf("a revoked token: got %+v, want it ended", g)
	}
}

// A restore or comparison accepts backups of the service itself, of another service if its key is
// given, and, if the operator trusts any origin, those that no known key authenticates.
func restoreAuthenticates(t *testing.T, open Open) {
	a, b := started(t, open, store.Config{}), started(t, open, store.Config{})
	a.GrantAll(t)
	file := BackupOf(t, a.Service)
	key, err := a.BackupKey(t.Context())
	testkit.NoError(t, err)
	if bytes.Contains(file, []byte(key)) {
		t.Error("the backup: got the key that authenticates it, want it nowhere")
	}
	forged := bytes.Clone(file)
	forged[len(forged)-1] ^= 1
	other, _ := access.NewSecret(access.BackupKind)
	anyone := access.RestoreOptions{Anybody: true}
	for what, c := range map[string]struct {
		into          *Node
		file          []byte
		trust         access.RestoreOptions
		taken, proven bool
	}{
		"no key":                 {into: b, file: file},
		"another key":            {into: b, file: file, trust: access.RestoreOptions{Key: other}},
		"a changed file":         {into: b, file: forged, trust: access.RestoreOptions{Key: key}},
		"a changed file of ours": {into: a, file: forged},
		"the key":                {into: b, file: file, trust: access.RestoreOptions{Key: key}, taken: true, proven: true},
		"our own, another key":   {into: a, file: file, trust: access.RestoreOptions{Key: other}, taken: true, proven: true},
		"our own":                {into: a, file: file, taken: true, proven: true},
		"any origin":             {into: b, file: forged, trust: anyone, taken: true},
		"any origin, proven":     {into: a, file: file, trust: anyone, taken: true, proven: true},
	} {
		c.trust.Compare = true
		report, err := restore(t, c.into.Service, c.file, c.trust)
		if (err == nil) != c.taken || err == nil && report.Backup.Authenticated != c.proven {
			t.Errorf("%s: got error %v, authenticated %t; want success %t, authenticated %t",
				what, err, report.Backup.Authenticated, c.taken, c.proven)
		}
		if _, bad := errors.AsType[access.BadBackup](err); bad == c.taken {
			t.Errorf("%s: got error %v, want a bad backup %t", what, err, !c.taken)
		}
	}
}

// Each backup is intact while records change.
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
				t.Errorf("an update of %s: got %v, want no error", id, err)
			}
		}
	})
	for range 10 {
		info, err := backup.Check(bytes.NewReader(BackupOf(t, a.Service)))
		if err != nil || info.Kinds["token"] < 4 {
			t.Errorf("Check: got %+v, error %v; want at least 4 tokens", info, err)
		}
	}
	stop()
	busy.Wait()
}

// Maps and backups leave out a road record with a valid checksum but no valid profile.
func backupWithoutMalformedRoads(t *testing.T, open Open) {
	n := started(t, open, store.Config{})
	subject := codec.RoadPrefix + road.Tile(0x47ab511000000000).String() // an arbitrary tile
	storeRecord(t, n.Engine, codec.Roads, subject, []byte("no profile"))
	ctx, cancel := context.WithCancel(t.Context())
	n.KeepRoads(ctx, &n.Roads, false, cancel)
	if n.Roads.Len() != 0 {
		t.Errorf("the stretches of the map: got %d, want none", n.Roads.Len())
	}
	if info, err := backup.Check(bytes.NewReader(BackupOf(t, n.Service))); err != nil || info.Kinds["road"] != 0 {
		t.Errorf("Check: got %+v, error %v; want no roads", info, err)
	}
}
