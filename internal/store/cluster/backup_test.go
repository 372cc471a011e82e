package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/backupfile"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// backupOf takes a backup of a node.
func backupOf(t testing.TB, n *forgetNode) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := n.Engine.Backup(t.Context(), &b, "v-test"); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unaudited merges a backup at once.
func unaudited(_ access.BackupInfo, merge func() error) error { return merge() }

func restoreInto(t *testing.T, n *forgetNode, backup []byte) access.RestoreReport {
	t.Helper()
	report, err := n.Restore(t.Context(), bytes.NewReader(backup), unaudited, func(done, total int) {
		if done < 1 || done > total {
			t.Errorf("%d of %d records are done", done, total)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// drive appends and folds a sample of each vehicle.
func (n *forgetNode) drive(t *testing.T, at int64, ids ...vehicle.ID) {
	t.Helper()
	var batch []vehicle.Sample
	for _, id := range ids {
		batch = append(batch, speedSample(id, at))
	}
	n.append(t, batch...)
	for p := range n.partitions {
		n.foldAll(t, p)
	}
}

func (n *forgetNode) stateOf(t *testing.T, id vehicle.ID) (vehicle.State, bool) {
	t.Helper()
	s, ok, err := n.State(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s, ok
}

func (n *forgetNode) token(t *testing.T, v access.Vehicles) access.Credential {
	t.Helper()
	tok, _, err := access.Issue(access.TokenRequest{Developer: "Ada", Operations: access.AllOperations, Vehicles: v}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Create(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	return tok
}

func (n *forgetNode) revoke(t *testing.T, id string) {
	t.Helper()
	if _, err := n.Update(t.Context(), access.TokenKind, id, func(t *access.Credential) error { t.Ended = time.Now(); return nil }); err != nil {
		t.Fatal(err)
	}
}

func (n *forgetNode) forget(t *testing.T, id vehicle.ID) access.ForgetReceipt {
	t.Helper()
	r, err := n.Forget(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// All comes back in an empty service that has other partitions, as it was.
func TestRestoreIntoEmpty(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	a := startNode(t, Config{DataDir: t.TempDir()})
	ids := grantAll(t, a)
	a.revoke(t, ids[1])
	var cars []vehicle.ID
	for i := range 1500 {
		cars = append(cars, vehicle.ID(fmt.Sprintf("Other%04d", i)))
	}
	a.drive(t, 1000, cars...)
	a.drive(t, 2000, cars[:100]...)
	a.forget(t, cars[0])
	backup := backupOf(t, a)
	info, err := CheckBackup(bytes.NewReader(backup))
	if err != nil || info.Version != "v-test" || info.Partitions != embeddedPartitions || info.Kinds["state"] != 1499 || info.Kinds["token"] != 4 || info.Kinds["tombstone"] != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	if bytes.Contains(backup, []byte(cars[0])) {
		t.Error("the backup names a forgotten vehicle")
	}

	b := startNode(t, Config{DataDir: t.TempDir(), Partitions: 7})
	report := restoreInto(t, b, backup)
	if n := report.Kinds["state"]; n != (access.RestoreCount{Restored: 1499}) {
		t.Errorf("states: %+v", n)
	}
	for i, id := range cars {
		want, had := a.stateOf(t, id)
		if got, ok := b.stateOf(t, id); ok != had || got != want || ok != (i != 0) {
			t.Fatalf("%s: %v %+v, want %v %+v", id, ok, got, had, want)
		}
	}
	if len(b.tables.Tokens.All()) != 4 {
		t.Errorf("%d tokens", len(b.tables.Tokens.All()))
	}
	for _, want := range a.tables.Tokens.All() {
		got, ok := b.tables.Tokens.Get(want.Name)
		if !ok || got.Hash != want.Hash || got.Vehicles.Len() != want.Vehicles.Len() || got.Vehicles.All() != want.Vehicles.All() || got.Ended.IsZero() != want.Ended.IsZero() {
			t.Errorf("token %s: %+v", want.Name, got)
		}
	}
	for _, want := range a.tables.Sources.All() {
		got, ok := b.tables.Sources.Get(want.Name)
		if !ok || got.Hash != want.Hash || got.Vehicles.Len() != want.Vehicles.Len() || got.Ended.IsZero() != want.Ended.IsZero() {
			t.Errorf("source %s: %+v", want.Name, got)
		}
	}
	if !b.forgotten.Has(cars[0]) {
		t.Error("what was forgotten is not any more")
	}
	// And again: nothing changes.
	for kind, n := range restoreInto(t, b, backup).Kinds {
		if n.Restored != 0 {
			t.Errorf("the second time, %s: %+v", kind, n)
		}
	}
}

// Two services that both have gone on since the backup.
func TestRestoreMerges(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	a := startNode(t, Config{DataDir: t.TempDir()})
	a.drive(t, 1000, "Newer", "Older", "GoneThere", "GoneHere", "GoneLater", "Back")
	revokedHere, revokedThere, granted := a.token(t, access.AllVehicles()), a.token(t, access.AllVehicles()), a.token(t, access.VehicleSet("Older", "GoneThere", "GoneHere"))
	base := backupOf(t, a)

	// b begins as a copy of a, with a key of its own beside that of a.
	b := startNode(t, Config{DataDir: t.TempDir()})
	restoreInto(t, b, base)
	b.drive(t, 3000, "Newer")
	b.forget(t, "GoneHere")
	b.forget(t, "Back")
	if _, err := b.Allow(t.Context(), "Back"); err != nil {
		t.Fatal(err)
	}
	b.revoke(t, revokedHere.Name)

	a.drive(t, 2000, "Newer", "Older")
	a.forget(t, "GoneThere")
	a.revoke(t, revokedThere.Name)
	backup := backupOf(t, a)
	receipt := a.forget(t, "GoneLater") // after the backup

	if n, err := b.Bury(t.Context(), []access.ForgetReceipt{receipt, receipt}); n != 1 || err != nil {
		t.Errorf("buried %d, %v", n, err)
	}
	report := restoreInto(t, b, backup)
	if n := report.Kinds["state"]; n != (access.RestoreCount{Restored: 1, Kept: 1, Forgotten: 3}) {
		t.Errorf("states: %+v", n)
	}
	for id, at := range map[vehicle.ID]vehicle.UnixMilli{"Newer": 3000, "Older": 2000, "GoneThere": 0, "GoneHere": 0, "GoneLater": 0, "Back": 0} {
		if s, ok := b.stateOf(t, id); s.Time != at || ok != (at != 0) {
			t.Errorf("%s: %v at %d, want %d", id, ok, s.Time, at)
		}
	}
	for id, gone := range map[vehicle.ID]bool{"Newer": false, "GoneThere": true, "GoneHere": true, "GoneLater": true, "Back": false} {
		if b.forgotten.Has(id) != gone {
			t.Errorf("%s: forgotten is not %v", id, gone)
		}
	}
	for _, tok := range []access.Credential{revokedHere, revokedThere} {
		if g, _ := b.tables.Tokens.Get(tok.Name); g == nil || g.Ended.IsZero() {
			t.Errorf("a revoked token lives: %+v", g)
		}
	}
	if g, _ := b.tables.Tokens.Get(granted.Name); g == nil || g.Vehicles.Len() != 1 || !g.Vehicles.Include("Older") {
		t.Errorf("grants of the forgotten came back: %+v", g)
	}
	testkit.Await(t, "the tables follow", func() bool { return b.knows("Older") && !b.knows("GoneThere") && !b.knows("GoneLater") })
}

// Operators follow the rules of sources.
func TestRestoreOperators(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, Config{DataDir: t.TempDir()}), startNode(t, Config{DataDir: t.TempDir()})
	hash := bytes.Repeat([]byte{7}, len(access.Hash{}))
	put := func(n *forgetNode, name string, hash []byte, removed bool) {
		o := access.Credential{Kind: access.OperatorKind, Name: name, Hash: access.Hash(hash), Created: time.Now()}
		if removed {
			o.Ended = time.Now()
		}
		writes, err := packCredential(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.storeBatch(t.Context(), Sources, writes); err != nil {
			t.Fatal(err)
		}
	}
	put(a, "new", hash, false)
	put(a, "removed-there", hash, true)
	put(b, "removed-there", hash, false)
	put(a, "removed-here", hash, false)
	put(b, "removed-here", hash, true)
	put(a, "another", hash, true)
	put(b, "another", bytes.Repeat([]byte{8}, len(hash)), false)
	report := restoreInto(t, b, backupOf(t, a))
	if n := report.Kinds["operator"]; n != (access.RestoreCount{Restored: 2, Kept: 2}) {
		t.Errorf("%+v", n)
	}
	for name, removed := range map[string]bool{"new": false, "removed-there": true, "removed-here": true, "another": false} {
		body, rev, err := b.lastRecord(t.Context(), Sources, "operator."+name)
		if err != nil || rev == 0 || bytes.Contains(body, []byte(`"ended"`)) != removed {
			t.Errorf("%s: %s, %v; want removed %v", name, body, err, removed)
		}
	}
}

// A file that is not whole, not ours or not understood changes nothing.
func TestBadBackups(t *testing.T) {
	t.Parallel()
	a := startNode(t, Config{DataDir: t.TempDir()})
	many := []vehicle.ID{}
	for i := range maxInlineIDs + 1 {
		many = append(many, vehicle.ID(fmt.Sprintf("Car%05d", i)))
	}
	a.token(t, access.VehicleSet(many...))
	a.drive(t, 1000, "Car1")
	good := backupOf(t, a)
	newer := func(kind string) []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"})
		subject := kind + ".0.X"
		record := codec.Seal(subject, []byte{0, '{', '}'})
		record[0]++ // as a later version would, with its checksum
		record = record[:len(record)-4]
		record = binary.LittleEndian.AppendUint32(record, codec.Checksum(subject, record))
		if err := errors.Join(began, w.Add(subject, record), w.End()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	unknown := func() []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"})
		record, _ := sealJSON("novelty.x", 1)
		if err := errors.Join(began, w.Add("novelty.x", record), w.End()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	cases := map[string]struct {
		file []byte
		want error
	}{
		"empty":          {nil, backupfile.ErrForeign},
		"foreign":        {[]byte("PK\x03\x04 something else altogether"), backupfile.ErrForeign},
		"older format":   {[]byte("carstate backup 1\nwhatever"), backupfile.ErrOlder},
		"newer format":   {[]byte("carstate backup 3\nwhatever"), backupfile.ErrNewer},
		"newer record":   {newer("state"), backupfile.ErrNewer},
		"unknown record": {unknown(), backupfile.ErrNewer},
		"more behind":    {append(bytes.Clone(good), 0), backupfile.ErrTorn},
		"twice":          {append(bytes.Clone(good), good...), backupfile.ErrTorn},
	}
	for i := len("carstate backup ") + 1; i < len(good); i += 1 + len(good)/100 {
		cases[fmt.Sprint("cut at ", i)] = struct {
			file []byte
			want error
		}{good[:i], backupfile.ErrTorn}
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		if i >= len("carstate backup 2\n") {
			cases[fmt.Sprint("flipped at ", i)] = struct {
				file []byte
				want error
			}{bad, backupfile.ErrTorn}
		}
	}
	// Names that no carstate gives, all checksums right.
	named := func(subject string, v any) []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"})
		record, err := sealJSON(subject, v)
		if state, ok := v.(vehicle.State); ok {
			record = codec.Seal(subject, codec.AppendState([]byte{0}, &state))
		}
		if err := errors.Join(err, began, w.Add(subject, record), w.End()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	state := vehicle.Observe(vehicle.State{}, speedSample("X", 1000))
	if _, err := CheckBackup(bytes.NewReader(named("state.0.X", state))); err != nil {
		t.Fatal(err)
	}
	tok, _, err := access.Issue(access.TokenRequest{Developer: "Ada", Operations: access.AllOperations, Vehicles: access.AllVehicles()}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token := credentialRecord{Kind: access.TokenKind, Name: tok.Name, Hash: tok.Hash[:], Vehicles: grantedRecord{All: true}}
	stray := token
	stray.Name = "a.b"
	operator := func(name string, hash []byte) credentialRecord {
		return credentialRecord{Kind: access.OperatorKind, Name: name, Hash: hash}
	}
	for subject, v := range map[string]any{
		"state.X": state, "state.0.X.Y": state, "state.0.": state, "state.0.X Y": state, "state.0.>": state, "state.0.X\r\nPUB x 0": state,
		"token.other": token, "token.a.b": stray, "token.": credentialRecord{Kind: access.TokenKind, Hash: tok.Hash[:]}, "tokenuse.*": 1, "tokenuse.a.b.c": 1, "operator.a.b": operator("a.b", tok.Hash[:]),
		"operator.ada": operator("ada", nil), "operator.bob": operator("ada", tok.Hash[:]), "operator." + tok.Name: token, "tokenuse.ada": 1, "tombstonekey.x": vidKeysRecord{Keys: [][]byte{make([]byte, vidKeyBytes)}},
		"tombstone.x": tombstoneRecord{Vehicle: make([]byte, sha256.Size)},
	} {
		cases["named "+subject] = struct {
			file []byte
			want error
		}{named(subject, v), backupfile.ErrTorn}
	}
	// A record left out, all checksums right.
	b, _, err := backupfile.Open(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	var without bytes.Buffer
	w, began := backupfile.NewWriter(&without, backupfile.Header{Version: "v9"})
	err = began
	for err == nil {
		var r backupfile.Record
		if r, err = b.Next(); err == nil && !strings.HasPrefix(r.Subject, "tokenset.") {
			err = w.Add(r.Subject, r.Sealed)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	cases["without its set"] = struct {
		file []byte
		want error
	}{without.Bytes(), backupfile.ErrTorn}

	target := startNode(t, Config{DataDir: t.TempDir()})
	for name, c := range cases {
		audited := func(access.BackupInfo, func() error) error { t.Errorf("%s: it is to be audited", name); return nil }
		_, err := target.Restore(t.Context(), bytes.NewReader(c.file), audited, func(int, int) { t.Error("something was done") })
		if !errors.Is(err, c.want) || !target.BadBackup(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	errAudit := errors.New("it cannot be audited")
	refuse := func(access.BackupInfo, func() error) error { return errAudit }
	if _, err := target.Restore(t.Context(), bytes.NewReader(good), refuse, func(int, int) {}); !errors.Is(err, errAudit) {
		t.Errorf("without an audit: %v", err)
	}
	if len(target.tables.Tokens.All()) != 0 {
		t.Error("something was changed")
	}
}

// While everything changes, each backup is whole, and each of its records is one
// that was stored.
func TestBackupWhileServing(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	a := startNode(t, Config{DataDir: t.TempDir()})
	grantAll(t, a)
	a.drive(t, 1000, "Car1", "Car2")
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	id := a.tables.Tokens.All()[2].Name
	busy.Go(func() { // a large set, replaced again and again
		for ctx.Err() == nil {
			if _, err := a.Update(ctx, access.TokenKind, id, func(*access.Credential) error { return nil }); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	part, err := a.Take(t.Context(), 0, "test")
	if err != nil {
		t.Fatal(err)
	}
	busy.Go(func() {
		for i := int64(1); ctx.Err() == nil; i++ {
			s := vehicle.Observe(vehicle.State{}, speedSample("X", i))
			if err := part.Commit(ctx, 0, map[vehicle.ID]vehicle.State{"A": s, "B": s}); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for range 10 {
		info, err := CheckBackup(bytes.NewReader(backupOf(t, a)))
		if err != nil || info.Kinds["token"] < 4 {
			t.Errorf("%+v, %v", info, err)
		}
	}
	stop()
	busy.Wait()
}

func FuzzCheckBackup(f *testing.F) {
	n := func() []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"})
		s := vehicle.Observe(vehicle.State{}, speedSample("X", 1000))
		state := codec.Seal("state.0.X", codec.AppendState([]byte{0}, &s))
		if err := errors.Join(began, w.Add("state.0.X", state), w.End()); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}()
	f.Add(n)
	f.Add(n[:len(n)-1])
	f.Add([]byte("carstate backup "))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, err := CheckBackup(bytes.NewReader(file))
		if err == nil {
			body := file[:len(file)-sha256.Size]
			if sum := sha256.Sum256(body); !bytes.Equal(sum[:], file[len(body):]) {
				t.Error("accepted with a wrong hash")
			}
		} else if !(*Keeper)(nil).BadBackup(err) {
			t.Errorf("an error of its own: %v", err)
		}
	})
}

// A sealed record that holds no profiles spoils neither a map nor a backup.
func TestBackupWithoutMalformedRoads(t *testing.T) {
	t.Parallel()
	n := startNode(t, Config{DataDir: t.TempDir()})
	subject := roadSubject(0x47ab511000000000) // any square will do
	if _, err := tileOfRoad(subject); err != nil {
		t.Fatal(err)
	}
	if _, err := n.storeBatch(t.Context(), Roads, []write{{subject: subject, record: codec.Seal(subject, []byte("\x00no profile"))}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n.KeepRoads(ctx, &n.roads, false, cancel)
	if n.roads.Len() != 0 {
		t.Errorf("%d stretches came of it", n.roads.Len())
	}
	if info, err := CheckBackup(bytes.NewReader(backupOf(t, n))); err != nil || info.Kinds["road"] != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}
