package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/backupfile"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// TestBadBackups checks that a file that is damaged, is not a backup, or comes from a newer version
// is refused and changes nothing.
func TestBadBackups(t *testing.T) {
	t.Parallel()
	e := newMemory(t)
	k, _ := runRecordStore(t, e, Config{})
	many := []vehicle.ID{}
	for i := range maxInlineIDs + 1 {
		many = append(many, vehicle.ID(fmt.Sprintf("Car%05d", i)))
	}
	issued, _, err := access.New(
		access.Request{Kind: access.TokenKind, Developer: "Ada", Operations: access.AllOperations,
			Vehicles: access.VehicleSet(many...)},
		time.Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Create(t.Context(), issued); err != nil {
		t.Fatal(err)
	}
	e.putState(t, "Car1", 1000)
	var whole bytes.Buffer
	if _, err := k.Backup(t.Context(), &whole, "v-test"); err != nil {
		t.Fatal(err)
	}
	good := whole.Bytes()
	key, err := k.BackupKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newer := func(kind string) []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"}, key)
		subject := kind + ".0.X"
		record := codec.Seal(subject, []byte{0, '{', '}'})
		record[0]++ // a later version, with its checksum
		record = record[:len(record)-4]
		record = binary.LittleEndian.AppendUint32(record, codec.Checksum(subject, record))
		if err := errors.Join(began, w.Add(subject, record), w.End()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	unknown := func() []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"}, key)
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
		"older format":   {[]byte("carstate backup 2\nwhatever"), backupfile.ErrOlder},
		"newer format":   {[]byte("carstate backup 4\nwhatever"), backupfile.ErrNewer},
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
		if i >= len("carstate backup 3\n") {
			want := backupfile.ErrTorn
			if i >= len(good)-sha256.Size {
				want = backupfile.ErrUnauthentic
			}
			cases[fmt.Sprint("flipped at ", i)] = struct {
				file []byte
				want error
			}{bad, want}
		}
	}
	// These are records with subjects that carstate never writes. All their checksums are right.
	named := func(subject string, v any) []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"}, key)
		record, err := sealJSON(subject, v)
		if state, ok := v.(vehicle.State); ok {
			record = codec.Seal(subject, codec.AppendState([]byte{0}, &state))
		}
		if err := errors.Join(err, began, w.Add(subject, record), w.End()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	state := speed("X", 1000)
	if _, err := CheckBackup(bytes.NewReader(named("state.0.X", state))); err != nil {
		t.Fatal(err)
	}
	tok, _, err := access.New(
		access.Request{Kind: access.TokenKind, Developer: "Ada", Operations: access.AllOperations,
			Vehicles: access.AllVehicles()},
		time.Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	token := credentialRecord{
		Kind: access.TokenKind, Name: tok.Name, Hash: tok.Hash[:], Vehicles: grantedRecord{All: true},
		Developer: "Ada", Operations: access.AllOperations,
	}
	stray := token
	stray.Name = "a.b"
	operator := func(name string, hash []byte) credentialRecord {
		return credentialRecord{Kind: access.OperatorKind, Name: name, Hash: hash}
	}
	for subject, v := range map[string]any{
		"state.X": state, "state.0.X.Y": state, "state.0.": state, "state.0.X Y": state, "state.0.>": state,
		"state.0.X\r\nPUB x 0": state, "token.other": token, "token.a.b": stray,
		"token.": credentialRecord{Kind: access.TokenKind, Hash: tok.Hash[:]}, "tokenuse.*": 1, "tokenuse.a.b.c": 1,
		"operator.a.b": operator("a.b", tok.Hash[:]),
		"operator.ada": operator("ada", nil), "operator.bob": operator("ada", tok.Hash[:]), "operator." + tok.Name: token,
		"tokenuse.ada": 1, "tombstonekey.x": vidKeysRecord{Keys: [][]byte{make([]byte, vidKeyBytes)}},
		"tombstone.x": tombstoneRecord{Vehicle: make([]byte, sha256.Size)},
	} {
		want := backupfile.ErrTorn
		if subject == "token.a.b" || subject == "token." || subject == "operator.a.b" {
			want = backupfile.ErrUnfit
		}
		cases["named "+subject] = struct {
			file []byte
			want error
		}{named(subject, v), want}
	}
	// This is a backup from which a record is missing. All its checksums are right.
	b, _, err := backupfile.Open(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	var without bytes.Buffer
	w, began := backupfile.NewWriter(&without, backupfile.Header{Version: "v9"}, key)
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

	target, _ := runRecordStore(t, newMemory(t), Config{DataDir: t.TempDir()})
	for name, c := range cases {
		audited := func(access.BackupInfo, func() error) error {
			t.Errorf("%s: Restore audited a bad backup", name)
			return nil
		}
		_, err := target.Restore(
			t.Context(), bytes.NewReader(c.file), access.BackupTrust{Key: key}, audited,
			func(int, int) { t.Error("Restore reported progress on a bad backup") },
		)
		if !errors.Is(err, c.want) || !target.BadBackup(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got error %v, want %v", name, err, c.want)
		}
	}
	errAudit := errors.New("it cannot be audited")
	refuse := func(access.BackupInfo, func() error) error { return errAudit }
	_, err = target.Restore(t.Context(), bytes.NewReader(good), access.BackupTrust{Key: key}, refuse, func(int, int) {})
	if !errors.Is(err, errAudit) {
		t.Errorf("got error %v, want that of the audit", err)
	}
	if len(target.tables.Tokens.All()) != 0 {
		t.Error("a refused backup changed the tokens")
	}
}

func FuzzCheckBackup(f *testing.F) {
	n := func() []byte {
		var b bytes.Buffer
		w, began := backupfile.NewWriter(&b, backupfile.Header{Version: "v9"}, "key")
		s := speed("X", 1000)
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
			body, sums := file[:len(file)-2*sha256.Size], file[len(file)-2*sha256.Size:]
			if sum := sha256.Sum256(body); !bytes.Equal(sum[:], sums[:sha256.Size]) {
				t.Error("accepted with a wrong hash")
			}
		} else if !(*RecordStore)(nil).BadBackup(err) {
			t.Errorf("BadBackup is false for %v", err)
		}
	})
}
