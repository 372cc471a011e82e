package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// The owner of the only partition has one state.
type engine struct{ *local.Engine }

func (engine) Ask(_ context.Context, _ int, q *store.Question) (r store.Reply, err error) {
	if q.Kind == store.AskStates {
		r.Entries = store.AppendEntry(nil, store.Entry{Vehicle: "Car1", State: packedState("Car1")})
	}
	return r, nil
}

func newEngine(t testing.TB, c store.Config) engine {
	t.Helper()
	c.Partitions = 1
	e, err := local.Open(t.Context(), local.Config{Config: c})
	return engine{testkit.Opened(t, e, err)}
}

func start(t testing.TB) *Service {
	t.Helper()
	c := store.Config{DataDir: t.TempDir()}
	e, tables := newEngine(t, c), new(access.Tables)
	k := store.NewRecordStore(e, c, tables)
	ctx, cancel := context.WithCancel(context.Background())
	var running, ready sync.WaitGroup
	ready.Add(2)
	for _, run := range []func(context.Context, func()) error{k.Tokens.Run, k.Sources.Run} {
		running.Go(func() {
			if err := run(ctx, ready.Done); err != nil {
				t.Errorf("Run: got %v, want no error", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	ready.Wait()
	return New(k, e, c, tables)
}

func packedState(id vehicle.ID) []byte {
	s := vehicle.Observe(vehicle.State{}, vehicle.Sample{Vehicle: id, Time: 1000})
	return codec.AppendState(nil, &s)
}

func record(t testing.TB, subject string, v any) store.Record {
	t.Helper()
	body, err := json.Marshal(v)
	testkit.NoError(t, err)
	return sealed(subject, body)
}

func create(t testing.TB, s *Service, r access.Credential) {
	t.Helper()
	c, _, err := access.New(r, time.Now())
	testkit.NoError(t, err)
	testkit.NoError(t, s.Create(t.Context(), c))
}

// more than a credential's own record lists
func tooMany() (ids []vehicle.ID) {
	for i := range 501 {
		ids = append(ids, vehicle.ID(fmt.Sprintf("Car%05d", i)))
	}
	return ids
}

func backupOf(t testing.TB, s *Service) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := s.Backup(t.Context(), &b, "v-test")
	testkit.NoError(t, err)
	return b.Bytes()
}

func backupWith(t testing.TB, key string, records ...store.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newWriter(&b, header{Version: "v9"}, key)
	for _, r := range records {
		err = errors.Join(err, w.add(r))
	}
	testkit.NoError(t, errors.Join(err, w.end()))
	return b.Bytes()
}

const hostileText = "\x1b]0;pwned\x07\x1b[31mEve\n\u202eevil<script>alert(1)</script>"

// Nothing of a bad file is audited or restored.
func TestBadBackups(t *testing.T) {
	t.Parallel()
	k := start(t)
	create(t, k, access.Credential{Kind: access.TokenKind, Developer: "Ada", Operations: access.AllOperations,
		Vehicles: access.VehicleSet(tooMany()...)})
	good := backupOf(t, k)
	key, err := k.BackupKey(t.Context())
	testkit.NoError(t, err)
	newer := record(t, "state.0.X", struct{}{})
	newer.Sealed[0]++ // a later version, with its checksum
	newer.Sealed = newer.Sealed[:len(newer.Sealed)-crc32.Size]
	newer.Sealed = binary.LittleEndian.AppendUint32(newer.Sealed, codec.Checksum(newer.Subject, newer.Sealed))
	type bad struct {
		file []byte
		want error
	}
	cases := map[string]bad{
		"empty":          {nil, errForeign},
		"foreign":        {[]byte("PK\x03\x04 something else altogether"), errForeign},
		"older format":   {[]byte("carstate backup 2\nwhatever"), errOlder},
		"newer format":   {[]byte("carstate backup 4\nwhatever"), errNewer},
		"newer record":   {backupWith(t, key, newer), errNewer},
		"unknown record": {backupWith(t, key, record(t, "novelty.x", 1)), errNewer},
		"more behind":    {append(bytes.Clone(good), 0), errTorn},
		"twice":          {append(bytes.Clone(good), good...), errTorn},
	}
	for i := len("carstate backup ") + 1; i < len(good); i += 1 + len(good)/100 {
		cases[fmt.Sprint("cut at ", i)] = bad{good[:i], errTorn}
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x40
		if i >= len("carstate backup 3\n") {
			want := errTorn
			if i >= len(good)-sha256.Size {
				want = errUnauthentic
			}
			cases[fmt.Sprint("flipped at ", i)] = bad{flipped, want}
		}
	}
	// Records with subjects that carstate never writes, with right checksums.
	if _, err := Check(bytes.NewReader(backupWith(t, key, sealed("state.0.X", packedState("X"))))); err != nil {
		t.Fatalf("Check: got %v, want no error", err)
	}
	hash := bytes.Repeat([]byte{7}, len(access.Hash{}))
	const name = "cstidAAAAAAAAAAA1"
	token := func(name, developer string) map[string]any {
		return map[string]any{"kind": access.TokenKind, "name": name, "hash": hash, "developer": developer,
			"vehicles": map[string]bool{"all": true}, "operations": access.AllOperations}
	}
	operator := func(name string, hash []byte) map[string]any {
		return map[string]any{"kind": access.OperatorKind, "name": name, "hash": hash}
	}
	for subject, v := range map[string]any{
		"token.other": token(name, "Ada"), "token.a.b": token("a.b", "Ada"),
		"token.": map[string]any{"kind": access.TokenKind, "hash": hash}, "tokenuse.*": 1, "tokenuse.a.b.c": 1,
		"token." + name: token(name, hostileText), "operator.a.b": operator("a.b", hash),
		"operator.ada": operator("ada", nil), "operator.bob": operator("ada", hash), "operator." + name: token(name, "Ada"),
		"tokenuse.ada": 1, "tombstonekey.x": map[string]any{"keys": [][]byte{make([]byte, 32)}},
		"tombstone.x": map[string]any{"vehicle": make([]byte, sha256.Size)},
	} {
		want := errTorn
		if subject == "token.a.b" || subject == "token." || subject == "token."+name || subject == "operator.a.b" {
			want = errUnfit
		}
		cases["named "+subject] = bad{backupWith(t, key, record(t, subject, v)), want}
	}
	for _, subject := range []string{
		"state.X", "state.0.X.Y", "state.0.", "state.0.X Y", "state.0.>", "state.0.X\r\nPUB x 0",
	} {
		cases["named "+subject] = bad{backupWith(t, key, sealed(subject, packedState("X"))), errTorn}
	}
	// One record is missing; the checksums are right.
	b, _, err := open(bytes.NewReader(good))
	testkit.NoError(t, err)
	var rest []store.Record
	for err == nil {
		var r store.Record
		if r, err = b.next(); err == nil && !strings.HasPrefix(r.Subject, "tokenset.") {
			rest = append(rest, store.Record{Subject: r.Subject, Sealed: bytes.Clone(r.Sealed)})
		}
	}
	cases["without its set"] = bad{backupWith(t, key, rest...), errTorn}

	target := start(t)
	for name, c := range cases {
		audited := func(access.BackupInfo, func() error) error {
			t.Errorf("%s: got an audit of a bad backup, want none", name)
			return nil
		}
		_, err := target.Restore(
			t.Context(), bytes.NewReader(c.file), access.RestoreOptions{Key: key}, audited,
			func(int, int) { t.Errorf("%s: got progress of a bad backup, want none", name) },
		)
		if !errors.Is(err, c.want) || strings.ContainsAny(err.Error(), "\n\x1b\u202e") {
			t.Errorf("%s: got error %v, want %v", name, err, c.want)
		}
	}
	errAudit := errors.New("it cannot be audited")
	refuse := func(access.BackupInfo, func() error) error { return errAudit }
	_, err = target.Restore(t.Context(), bytes.NewReader(good), access.RestoreOptions{Key: key}, refuse, func(int, int) {})
	if !errors.Is(err, errAudit) {
		t.Errorf("got error %v, want that of the audit", err)
	}
	if len(target.tables.Tokens.All()) != 0 {
		t.Errorf("a refused backup: got %d tokens, want 0", len(target.tables.Tokens.All()))
	}
}

func FuzzCheckBackup(f *testing.F) {
	n := backupWith(f, "key", sealed("state.0.X", packedState("X")))
	f.Add(n)
	f.Add(n[:len(n)-1])
	f.Add([]byte("carstate backup "))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, err := Check(bytes.NewReader(file))
		if err == nil {
			body, sums := file[:len(file)-2*sha256.Size], file[len(file)-2*sha256.Size:]
			if sum := sha256.Sum256(body); !bytes.Equal(sum[:], sums[:sha256.Size]) {
				t.Error("Check of a wrong hash: got no error, want one")
			}
		} else if _, bad := errors.AsType[access.BadBackup](err); !bad {
			t.Errorf("got error %v, want a bad backup", err)
		}
	})
}

// The version of a backup is displayed.
func TestHostileBackupHeaderIsRefused(t *testing.T) {
	for _, version := range []string{hostileText, strings.Repeat("v", maxVersion+1)} {
		var file bytes.Buffer
		w, err := newWriter(&file, header{Version: version}, "key")
		testkit.NoError(t, errors.Join(err, w.end()))
		info, err := Check(&file, "key")
		if !errors.Is(err, errUnfit) || strings.Contains(err.Error(), "evil") {
			t.Errorf("got %+v, error %v; want %v", info, err, errUnfit)
		}
	}
}

func merge(_ access.BackupInfo, merge func() error) error { return merge() }

// Backups of many installations leave no more keys than a node may use to hash each vid.
func TestRestoreBoundsTombstoneKeys(t *testing.T) {
	const most = 16
	s := start(t)
	restore := func(from, n int) error {
		var keys [][]byte
		for i := range n {
			keys = append(keys, bytes.Repeat([]byte{byte(from + i)}, 32))
		}
		file := bytes.NewReader(backupWith(t, "key", record(t, codec.VIDKeysSubject, map[string]any{"keys": keys})))
		_, err := s.Restore(t.Context(), file, access.RestoreOptions{Key: "key"}, merge, func(int, int) {})
		return err
	}
	for _, c := range []struct {
		from, n int
		fits    bool
	}{{1, most - 1, true}, {1, most - 1, true}, {100, 1, false}, {1, most, false}} {
		if err := restore(c.from, c.n); (err == nil) != c.fits || err != nil && !errors.Is(err, errUnfit) {
			t.Errorf("restoring %d keys from %d on: got error %v, want success: %t", c.n, c.from, err, c.fits)
		}
	}
	is, err := s.engine.Last(t.Context(), codec.Sources, codec.VIDKeysSubject)
	testkit.NoError(t, err)
	var keys struct{ Keys [][]byte }
	if err := json.Unmarshal(is.Body, &keys); err != nil || len(keys.Keys) != most {
		t.Errorf("got %d keys, error %v; want %d", len(keys.Keys), err, most)
	}
}

func TestRestore_OwnVIDKeysDamaged(t *testing.T) {
	c := store.Config{DataDir: t.TempDir()}
	e, tables := newEngine(t, c), new(access.Tables)
	s := New(store.NewRecordStore(e, c, tables), e, c, tables)
	own := record(t, codec.VIDKeysSubject, map[string]any{"keys": []string{"c2hvcnQ="}}).Sealed
	_, err := e.Store(t.Context(), codec.Sources, []store.Write{{Subject: codec.VIDKeysSubject, Record: own}})
	testkit.NoError(t, err)
	file := backupWith(t, "key", record(t, codec.VIDKeysSubject, map[string]any{"keys": [][]byte{make([]byte, 32)}}))
	_, err = s.Restore(t.Context(), bytes.NewReader(file), access.RestoreOptions{Key: "key"}, merge, func(int, int) {})
	if _, bad := errors.AsType[access.BadBackup](err); bad || !errors.Is(err, codec.ErrDamaged) {
		t.Errorf("got error %v, want damage that is not of the backup", err)
	}
}

// After a large list of vehicles is replaced, no record and no backup names them: a later forget
// would not find such a record.
func TestUpdate_EmptiesReplacedLists(t *testing.T) {
	s := start(t)
	many := tooMany()
	create(t, s, access.Credential{Kind: access.SourceKind, Name: "gateway", Vehicles: access.VehicleSet(many...)})
	grant := func(v access.Vehicles) {
		t.Helper()
		_, err := s.Update(t.Context(), access.SourceKind, "gateway", func(c *access.Credential) error {
			return c.Change(access.Change{Vehicles: &v}, time.Now())
		})
		testkit.NoError(t, err)
	}
	grant(access.VehicleSet(many[0]))
	parts := 0
	if err := s.engine.Scan(t.Context(), codec.Sources, []string{"sourceset.*.*"}, func(r store.Record) error {
		if parts++; bytes.Contains(r.Body, []byte("Car")) {
			t.Errorf("%s: got the names of vehicles, want none: %s", r.Subject, r.Body)
		}
		return nil
	}); err != nil || parts != 1 {
		t.Errorf("got %d set records, error %v; want 1", parts, err)
	}
	info, err := Check(bytes.NewReader(backupOf(t, s)))
	if err != nil || info.Kinds["sourceset"] != 0 || info.Kinds["source"] != 1 {
		t.Errorf("got kinds %v, error %v; want one source without sets", info.Kinds, err)
	}
	grant(access.VehicleSet(many...))
	if g, ok := s.tables.Sources.Get("gateway"); !ok || g.Vehicles.Len() != len(many) {
		t.Errorf("the source has %d vehicles, want %d", g.Vehicles.Len(), len(many))
	}
}

type counted struct {
	*bytes.Reader
	n atomic.Int64
}

func (r *counted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

type slow struct {
	engine
	storing func(writes []store.Write)
}

func (e *slow) Store(ctx context.Context, stream string, writes []store.Write) (uint64, error) {
	if stream == codec.Roads {
		e.storing(writes)
	}
	return e.engine.Store(ctx, stream, writes)
}

// If a restore read large records faster than it stores them, it would hold the whole backup.
func TestRestore_BoundsRoads(t *testing.T) {
	t.Parallel()
	const roads, size = 42, 1<<20 - 1024                    // the last batch is incomplete
	const most = (batchWriters+1)*(batchBytes+size) + 1<<20 // 1 MiB for the buffers of the reader
	var records []store.Record
	for i := range roads {
		subject := fmt.Sprintf("road.%d", i)
		records = append(records, store.Record{Subject: subject, Sealed: codec.Seal(subject, make([]byte, size))})
	}
	file := &counted{Reader: bytes.NewReader(backupWith(t, "key", records...))}
	c := store.Config{DataDir: t.TempDir()}
	e, tables := &slow{engine: newEngine(t, c)}, new(access.Tables)
	r := New(store.NewRecordStore(e, c, tables), e, c, tables).newRestore(func(int, int) {})
	var stored atomic.Int64
	e.storing = func(writes []store.Write) {
		time.Sleep(50 * time.Millisecond) // the restore could read on in this time
		if held := file.n.Load() - stored.Load(); held > most {
			t.Errorf("the restore holds %d bytes, want at most %d", held, most)
		}
		stored.Add(int64(len(writes)) * size)
	}
	testkit.NoError(t, r.run(t.Context(), file))
	if n := r.counts["road"]; n != (access.RestoreCount{Restored: roads}) {
		t.Errorf("got %+v, want %d restored", n, roads)
	}
}
