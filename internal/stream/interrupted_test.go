package stream

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// stagedRecord is a record as the server keeps it until its batch is committed.
func stagedRecord(store string, seq int, at time.Time, subject string, payload []byte, headers string) []byte {
	head := "NATS/1.0\r\n" + headers + "\r\n"
	r := binary.LittleEndian.AppendUint32(nil, uint32(blockHeader+len(subject)+4+len(head)+len(payload)+blockHash)|hasHeadersBit)
	r = binary.LittleEndian.AppendUint64(r, uint64(seq))
	r = binary.LittleEndian.AppendUint64(r, uint64(at.UnixNano()))
	r = binary.LittleEndian.AppendUint16(r, uint16(len(subject)))
	r = append(r, subject...)
	b := newBlock(store, 1, nil)
	b.hash.Write(r[4:20])
	b.hash.Write([]byte(subject + head))
	b.hash.Write(payload)
	r = binary.LittleEndian.AppendUint32(r, uint32(len(head)))
	return b.hash.Sum(append(append(r, head...), payload...))
}

// A power cut in the middle of an atomic batch may take records that were
// acknowledged before with it. What was under way is finished at the next start,
// and only that.
func TestInterruptedBatch(t *testing.T) {
	t.Parallel()
	running := t.TempDir()
	e, err := Open(t.Context(), Config{DataDir: running, Partitions: 1, Patience: Patience{Beat: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	subjects := []string{"tokenset.T.0", "tokenset.T.1", "token.T"}
	record := func(subject, text string) []byte { return seal(subject, append([]byte{0}, text...)) }
	var old []write
	for _, s := range subjects {
		old = append(old, write{subject: s, record: record(s, "old")})
	}
	last, err := e.storeBatch(t.Context(), Tokens, old)
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.lastMessage(t.Context(), Tokens, "token.T")
	if err != nil {
		t.Fatal(err)
	}
	own := m.Header.Get("Nats-Batch-Id")
	// The server dropped what was to be replaced, and then the power went.
	s, err := e.js.Stream(t.Context(), Tokens)
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
	for _, c := range []struct {
		name, id string
		sent     time.Time
		expect   string // a header line of the last record
		records  int    // that are there
		damaged  bool
		want     []string
	}{
		{"nothing of it arrived", "other", soon, fmt.Sprintf("Nats-Expected-Last-Subject-Sequence: %d\r\n", last), 3, false, all},
		{"it depends on nothing", "other", soon, "", 3, false, all},
		{"its end arrived", own, before, fmt.Sprintf("Nats-Expected-Last-Subject-Sequence: %d\r\n", last-1), 3, false, []string{"new", "old", "old"}},
		{"it was refused, or is long done", "other", soon, fmt.Sprintf("Nats-Expected-Last-Subject-Sequence: %d\r\n", last-1), 3, false, untouched},
		{"it was done before what is there", "other", before, "", 3, false, untouched},
		{"it was never complete", "other", soon, "", 2, false, untouched},
		{"it is damaged", "other", soon, "", 3, true, untouched},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(crashed)); err != nil {
				t.Fatal(err)
			}
			const store = "Store"
			var content []byte
			for i, s := range subjects[:c.records] {
				headers := fmt.Sprintf("Nats-Batch-Id: %s\r\nNats-Batch-Sequence: %d\r\n", c.id, i+1)
				if i == 2 {
					headers += c.expect + "Nats-Batch-Commit: 1\r\n"
				}
				content = append(content, stagedRecord(store, i+1, c.sent, s, record(s, "new"), headers)...)
			}
			if c.damaged {
				content[len(content)/2]++
			}
			msgs := filepath.Join(streamDir(dir, Tokens), "batches", store, "msgs")
			if err := os.MkdirAll(msgs, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(msgs, "1.blk"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			// A start that was cut off too has put it aside.
			aside := t.TempDir()
			if err := os.CopyFS(aside, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := keepInterrupted(aside); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(streamDir(aside, Tokens), "batches")); err != nil {
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
	e, err := Open(t.Context(), Config{DataDir: running, Partitions: 1, Patience: Patience{Beat: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const subject = "token.T"
	record := seal(subject, append([]byte{0}, "record"...))
	last, err := e.storeBatch(t.Context(), Tokens, []write{{subject: subject, record: record}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(crashed, os.DirFS(running)); err != nil {
		t.Fatal(err)
	}
	msgs := filepath.Join(streamDir(crashed, Tokens), "msgs")
	blocks, newest, err := listBlocks(msgs)
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
	staged := filepath.Join(streamDir(crashed, Tokens), "batches", "Store", "msgs")
	if err := os.MkdirAll(staged, 0o700); err != nil {
		t.Fatal(err)
	}
	headers := fmt.Sprintf("Nats-Batch-Id: other\r\nNats-Expected-Last-Subject-Sequence: %d\r\nNats-Batch-Commit: 1\r\n", last)
	if err := os.WriteFile(filepath.Join(staged, "1.blk"), stagedRecord("Store", 1, time.Now(), subject, record, headers), 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, crashed, []string{subject}, []string{"record"})
}

// holds opens a directory and looks what the last records of some subjects say; ""
// stands for none.
func holds(t *testing.T, dir string, subjects, want []string) {
	t.Helper()
	e, err := Open(t.Context(), Config{DataDir: dir, Patience: Patience{Beat: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, s := range subjects {
		body, _, err := e.lastRecord(t.Context(), Tokens, s)
		if err != nil || string(body) != want[i] {
			t.Errorf("%s is %q, want %q; %v", s, body, want[i], err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, interruptedFile)); !os.IsNotExist(err) {
		t.Errorf("what was put aside is still there: %v", err)
	}
}

func TestInterruptedFileThatMakesNoSense(t *testing.T) {
	for _, text := range []string{"", "{", `[null]`, `[{"Stream":"TOKENS"}]`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, interruptedFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keepInterrupted(dir); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	good, err := json.Marshal([]*interrupted{{Stream: Tokens, Records: []interruptedRecord{{Subject: "a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, interruptedFile), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := keepInterrupted(dir); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}
