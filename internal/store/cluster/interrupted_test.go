package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/minio/highwayhash"

	"carstate/internal/store"
	"carstate/internal/store/cluster/embedded"
	"carstate/internal/store/codec"
)

// stagedRecord is a record as the server keeps it until its batch is committed.
func stagedRecord(store string, seq int, at time.Time, subject string, payload []byte, headers string) []byte {
	head := "NATS/1.0\r\n" + headers + "\r\n"
	r := binary.LittleEndian.AppendUint32(nil, uint32(22+len(subject)+4+len(head)+len(payload)+8)|1<<31)
	r = binary.LittleEndian.AppendUint64(r, uint64(seq))
	r = binary.LittleEndian.AppendUint64(r, uint64(at.UnixNano()))
	r = binary.LittleEndian.AppendUint16(r, uint16(len(subject)))
	r = append(r, subject...)
	key := sha256.Sum256([]byte(store + "-1"))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	hash.Write(r[4:20])
	hash.Write([]byte(subject + head))
	hash.Write(payload)
	r = binary.LittleEndian.AppendUint32(r, uint32(len(head)))
	return hash.Sum(append(append(r, head...), payload...))
}

// stage puts a batch where the server keeps it until it is committed.
func stage(t *testing.T, dir, stream string, content []byte) {
	t.Helper()
	batch := filepath.Join(embedded.StreamDir(dir, stream), "batches", "Store")
	if err := os.MkdirAll(filepath.Join(batch, "msgs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{filepath.Join("msgs", "1.blk"): content, "meta.inf": []byte("{}")} {
		if err := os.WriteFile(filepath.Join(batch, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A power cut in the middle of an atomic batch may take records that were
// acknowledged before with it. What was under way is finished at the next start,
// and only that.
func TestInterruptedBatch(t *testing.T) {
	t.Parallel()
	running := t.TempDir()
	e, err := Open(t.Context(), Config{DataDir: running, Partitions: 1, Timeouts: Timeouts{Beat: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	subjects := []string{"tokenset.T.0", "tokenset.T.1", "token.T"}
	record := func(subject, text string) []byte { return codec.Seal(subject, append([]byte{0}, text...)) }
	var old []store.Write
	for _, s := range subjects {
		old = append(old, store.Write{Subject: s, Record: record(s, "old")})
	}
	last, err := e.Store(t.Context(), codec.Tokens, old)
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.lastMessage(t.Context(), codec.Tokens, "token.T")
	if err != nil {
		t.Fatal(err)
	}
	own := m.Header.Get("Nats-Batch-Id")
	// The server dropped what was to be replaced, and then the power went.
	s, err := e.js.Stream(t.Context(), codec.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), last-2); err != nil {
		t.Fatal(err)
	}
	crashed := t.TempDir()
	if err := os.CopyFS(crashed, os.DirFS(running)); err != nil {
		t.Fatal(err)
	}

	soon, before := time.Now(), m.Time.Add(-time.Millisecond)
	all := []string{"new", "new", "new"}
	untouched := []string{"", "old", "old"}
	on := func(seq uint64) string { return fmt.Sprintf("Nats-Expected-Last-Subject-Sequence: %d\r\n", seq) }
	for _, c := range []struct {
		name, id string
		sent     time.Time
		expect   [3]string // header lines
		records  int       // that are there; 0: all
		damaged  bool
		gone     bool // its description
		want     []string
	}{
		{name: "nothing of it arrived", id: "other", sent: soon, expect: [3]string{2: on(last)}, want: all},
		{name: "it depends on nothing", id: "other", sent: soon, want: all},
		{name: "its end arrived", id: own, sent: before, expect: [3]string{2: on(last - 1)}, want: []string{"new", "old", "old"}},
		{name: "each record depends on its own", id: "other", sent: soon, expect: [3]string{on(last - 2), on(last - 1), on(last)}, want: all},
		{name: "it was refused, or is long done", id: "other", sent: soon, expect: [3]string{2: on(last - 1)}, want: untouched},
		{name: "it was refused for its first record that is there", id: "other", sent: soon, expect: [3]string{1: on(last - 2), 2: on(last)}, want: untouched},
		{name: "it was refused, and is being removed", id: "other", sent: soon, expect: [3]string{2: on(last)}, gone: true, want: untouched},
		{name: "it was done before what is there", id: "other", sent: before, want: untouched},
		{name: "the clock was set back", id: "other", sent: before, expect: [3]string{2: on(last)}, want: all},
		{name: "it was never complete", id: "other", sent: soon, records: 2, want: untouched},
		{name: "it is damaged", id: "other", sent: soon, damaged: true, want: untouched},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(crashed)); err != nil {
				t.Fatal(err)
			}
			const store = "Store"
			var content []byte
			for i, s := range subjects[:cmp.Or(c.records, len(subjects))] {
				headers := fmt.Sprintf("Nats-Batch-Id: %s\r\nNats-Batch-Sequence: %d\r\n", c.id, i+1) + c.expect[i]
				if i == 2 {
					headers += "Nats-Batch-Commit: 1\r\n"
				}
				content = append(content, stagedRecord(store, i+1, c.sent, s, record(s, "new"), headers)...)
			}
			if c.damaged {
				content[len(content)/2]++
			}
			stage(t, dir, codec.Tokens, content)
			if c.gone {
				if err := os.Remove(filepath.Join(embedded.StreamDir(dir, codec.Tokens), "batches", store, "meta.inf")); err != nil {
					t.Fatal(err)
				}
			}
			// A start that was cut off too has put it aside.
			aside := t.TempDir()
			if err := os.CopyFS(aside, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // once more, before the server has thrown it away
				if all, err := embedded.KeepInterrupted(aside); err != nil || len(all) > 1 {
					t.Fatalf("%d batches are put aside: %v", len(all), err)
				}
			}
			if err := os.RemoveAll(filepath.Join(embedded.StreamDir(aside, codec.Tokens), "batches")); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{dir, aside} {
				for range 2 {
					holds(t, dir, subjects, c.want)
				}
			}
		})
	}
}

// A batch may begin in one block and go on in the next. Only then the first of the
// two may be torn.
func TestInterruptedInTwoBlocks(t *testing.T) {
	t.Parallel()
	running, crashed := t.TempDir(), t.TempDir()
	e, err := Open(t.Context(), Config{DataDir: running, Partitions: 1, Timeouts: Timeouts{Beat: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const subject = "token.T"
	record := codec.Seal(subject, append([]byte{0}, "record"...))
	last, err := e.Store(t.Context(), codec.Tokens, []store.Write{{Subject: subject, Record: record}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(crashed, os.DirFS(running)); err != nil {
		t.Fatal(err)
	}
	msgs := filepath.Join(embedded.StreamDir(crashed, codec.Tokens), "msgs")
	blocks, newest, err := embedded.ListBlocks(msgs)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(blocks[newest])
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{blocks[newest]: append(content, content[:30]...), filepath.Join(msgs, fmt.Sprint(newest+1, ".blk")): nil} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := Open(t.Context(), Config{DataDir: crashed}); err == nil {
		e.Close()
		t.Fatal("a torn block that was finished was taken")
	}
	headers := fmt.Sprintf("Nats-Batch-Id: other\r\nNats-Expected-Last-Subject-Sequence: %d\r\nNats-Batch-Commit: 1\r\n", last)
	stage(t, crashed, codec.Tokens, stagedRecord("Store", 1, time.Now(), subject, record, headers))
	holds(t, crashed, []string{subject}, []string{"record"})
}

// holds opens a directory and looks what the last records of some subjects say; ""
// stands for none.
func holds(t *testing.T, dir string, subjects, want []string) {
	t.Helper()
	e, err := Open(t.Context(), Config{DataDir: dir, Timeouts: Timeouts{Beat: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, s := range subjects {
		is, err := e.Last(t.Context(), codec.Tokens, s)
		if err != nil || string(is.Body) != want[i] {
			t.Errorf("%s is %q, want %q; %v", s, is.Body, want[i], err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "interrupted.json")); !os.IsNotExist(err) {
		t.Errorf("what was put aside is still there: %v", err)
	}
}

func TestInterruptedFileThatMakesNoSense(t *testing.T) {
	for _, text := range []string{"", "{", `[null]`, `[{"Stream":"TOKENS"}]`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "interrupted.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := embedded.KeepInterrupted(dir); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	good, err := json.Marshal([]*embedded.Interrupted{{Stream: codec.Tokens, Records: []embedded.Record{{Subject: "a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "interrupted.json"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := embedded.KeepInterrupted(dir); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// A stream that is full does not keep a node from starting: what it lacks waits
// for a start that finds room.
func TestInterruptedAndFull(t *testing.T) {
	t.Parallel()
	e := openOne(t, Config{DataDir: t.TempDir()})
	s, err := e.js.Stream(t.Context(), codec.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	room := config.MaxBytes
	const subject = "token.T"
	b := &embedded.Interrupted{Stream: codec.Tokens, ID: "b", Records: []embedded.Record{{Subject: subject, Payload: codec.Seal(subject, make([]byte, 100<<10)), Time: time.Now().UnixNano()}}}
	file := filepath.Join(e.config.DataDir, "interrupted.json")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, full := range []bool{true, false} {
		if config.MaxBytes = room; full {
			config.MaxBytes = 50 << 10
		}
		if _, err := e.js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if err := e.finishInterrupted(t.Context(), []*embedded.Interrupted{b}); err != nil {
			t.Fatal(err)
		}
		is, err := e.Last(t.Context(), codec.Tokens, subject)
		if err != nil || (is.Seq == 0) != full {
			t.Errorf("full: %v, stored at %d: %v", full, is.Seq, err)
		}
		if _, err := os.Stat(file); (err == nil) != full {
			t.Errorf("full: %v, what was put aside: %v", full, err)
		}
	}
}
