package local

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/local/durable"
)

// Pebble takes some damage of its log for the incomplete end that a power cut leaves, and opens the
// store without the records after it. So this file outside the store says up to where each stream
// was acknowledged.
//
// It is written after each sync of the store, and not synced: after a kill it is exact, and after a
// power cut it never says more than was acknowledged.
type mark struct {
	mu   sync.Mutex // guards the fields below
	f    vfs.File
	ends map[string]uint64
}

const markFile = "acknowledged"

func (m *mark) open(d *dataDir) (err error) {
	m.ends = make(map[string]uint64)
	m.f, err = d.fs.OpenReadWrite(d.name(markFile), vfs.WriteCategoryUnspecified)
	return err
}

// note ignores an error, because what the file says then is correct, too.
func (m *mark) note(stream string, seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.f == nil || m.ends[stream] >= seq {
		return
	}
	m.ends[stream] = seq
	_, _ = m.f.WriteAt(markText(m.ends), 0)
}

func markText(ends map[string]uint64) (text []byte) {
	for _, name := range codec.Streams {
		text = fmt.Appendf(text, "%s %d\n", name, ends[name])
	}
	return fmt.Appendf(text, "%08x\n", crc32.Checksum(text, codec.Castagnoli))
}

func (m *mark) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.f != nil {
		_ = m.f.Close() // see note
	}
	m.f = nil
}

// readMark returns nothing if the file is absent or was being written.
func readMark(d *dataDir) map[string]uint64 {
	text, err := durable.ReadFile(d.fs, d.name(markFile))
	if err != nil {
		return nil
	}
	in, ends := bytes.NewReader(text), make(map[string]uint64)
	for _, name := range codec.Streams {
		var end uint64
		_, _ = fmt.Fscanf(in, name+" %d\n", &end) // after an error, the comparison below fails
		ends[name] = end
	}
	if !bytes.HasPrefix(text, markText(ends)) { // the rest is of a longer text
		return nil
	}
	return ends
}
