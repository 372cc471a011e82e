package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/backupfile"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/testkit"
)

// Nothing of a bad file is audited or restored.
func TestBadBackups(t *testing.T) {
	t.Parallel()
	e := newMemory(t)
	k := runRecordStore(t, e, Config{})
	create(t, k, tokenFor(access.VehicleSet(tooMany()...)))
	e.states["Car1"] = speed("Car1", 1000)
	good := backupOf(t, k)
	key, err := k.BackupKey(t.Context())
	testkit.NoError(t, err)
	newer := write(t, "state.0.X", struct{}{})
	newer.Record[0]++ // a later version, with its checksum
	newer.Record = newer.Record[:len(newer.Record)-crc32.Size]
	newer.Record = binary.LittleEndian.AppendUint32(newer.Record, codec.Checksum(newer.Subject, newer.Record))
	type bad struct {
		file []byte
		want error
	}
	cases := map[string]bad{
		"empty":          {nil, backupfile.ErrForeign},
		"foreign":        {[]byte("PK\x03\x04 something else altogether"), backupfile.ErrForeign},
		"older format":   {[]byte("carstate backup 2\nwhatever"), backupfile.ErrOlder},
		"newer format":   {[]byte("carstate backup 4\nwhatever"), backupfile.ErrNewer},
		"newer record":   {backupWith(t, key, newer), backupfile.ErrNewer},
		"unknown record": {backupWith(t, key, write(t, "novelty.x", 1)), backupfile.ErrNewer},
		"more behind":    {append(bytes.Clone(good), 0), backupfile.ErrTorn},
		"twice":          {append(bytes.Clone(good), good...), backupfile.ErrTorn},
	}
	for i := len("carstate backup ") + 1; i < len(good); i += 1 + len(good)/100 {
		cases[fmt.Sprint("cut at ", i)] = bad{good[:i], backupfile.ErrTorn}
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x40
		if i >= len("carstate backup 3\n") {
			want := backupfile.ErrTorn
			if i >= len(good)-sha256.Size {
				want = backupfile.ErrUnauthentic
			}
			cases[fmt.Sprint("flipped at ", i)] = bad{flipped, want}
		}
	}
	// Records with subjects that carstate never writes, with right checksums.
	if _, err := CheckBackup(bytes.NewReader(backupWith(t, key, stateWrite("X", 1000)))); err != nil {
		t.Fatal(err)
	}
	hash := make([]byte, len(access.Hash{}))
	const name = "cstidAAAAAAAAAAA1"
	token := credentialRecord{
		Kind: access.TokenKind, Name: name, Hash: hash, Vehicles: grantedRecord{All: true},
		Developer: "Ada", Operations: access.AllOperations,
	}
	stray := token
	stray.Name = "a.b"
	operator := func(name string, hash []byte) credentialRecord {
		return credentialRecord{Kind: access.OperatorKind, Name: name, Hash: hash}
	}
	for subject, v := range map[string]any{
		"token.other": token, "token.a.b": stray,
		"token.": credentialRecord{Kind: access.TokenKind, Hash: hash}, "tokenuse.*": 1, "tokenuse.a.b.c": 1,
		"operator.a.b": operator("a.b", hash),
		"operator.ada": operator("ada", nil), "operator.bob": operator("ada", hash), "operator." + name: token,
		"tokenuse.ada": 1, "tombstonekey.x": vidKeysRecord{Keys: [][]byte{make([]byte, vidKeyBytes)}},
		"tombstone.x": tombstoneRecord{Vehicle: make([]byte, sha256.Size)},
	} {
		want := backupfile.ErrTorn
		if subject == "token.a.b" || subject == "token." || subject == "operator.a.b" {
			want = backupfile.ErrUnfit
		}
		cases["named "+subject] = bad{backupWith(t, key, write(t, subject, v)), want}
	}
	state := speed("X", 1000)
	for _, subject := range []string{
		"state.X", "state.0.X.Y", "state.0.", "state.0.X Y", "state.0.>", "state.0.X\r\nPUB x 0",
	} {
		w := Write{Subject: subject, Record: codec.Seal(subject, codec.AppendState([]byte{0}, &state))}
		cases["named "+subject] = bad{backupWith(t, key, w), backupfile.ErrTorn}
	}
	// One record is missing; the checksums are right.
	b, _, err := backupfile.Open(bytes.NewReader(good))
	testkit.NoError(t, err)
	var rest []Write
	for err == nil {
		var r backupfile.Record
		if r, err = b.Next(); err == nil && !strings.HasPrefix(r.Subject, "tokenset.") {
			rest = append(rest, Write{Subject: r.Subject, Record: bytes.Clone(r.Sealed)})
		}
	}
	cases["without its set"] = bad{backupWith(t, key, rest...), backupfile.ErrTorn}

	target := runRecordStore(t, newMemory(t), Config{DataDir: t.TempDir()})
	for name, c := range cases {
		audited := func(access.BackupInfo, func() error) error {
			t.Errorf("%s: Restore audited a bad backup", name)
			return nil
		}
		_, err := target.Restore(
			t.Context(), bytes.NewReader(c.file), access.RestoreOptions{Key: key}, audited,
			func(int, int) { t.Error("Restore reported progress on a bad backup") },
		)
		if !errors.Is(err, c.want) || !target.BadBackup(err) || strings.Contains(err.Error(), "\n") {
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
		t.Error("a refused backup changed the tokens")
	}
}

func FuzzCheckBackup(f *testing.F) {
	n := backupWith(f, "key", stateWrite("X", 1000))
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
