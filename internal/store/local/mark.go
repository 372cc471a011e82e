package local

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strings"
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
	text []byte
}

const markFile = "acknowledged"

func (m *mark) open(d *dataDir) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends = make(map[string]uint64)
	if _, err := d.fs.Stat(d.name(markFile)); errors.Is(err, fs.ErrNotExist) {
		if err := durable.WriteFile(d.fs, d.name(markFile), nil); err != nil {
			return err
		}
	}
	m.f, err = d.fs.OpenReadWrite(d.name(markFile), vfs.WriteCategoryUnspecified)
	return err
}

// An error is ignored, because what the file says then is correct, too.
func (m *mark) note(stream string, seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.f == nil || m.ends[stream] >= seq {
		return
	}
	m.ends[stream] = seq
	m.text = m.text[:0]
	for _, name := range codec.Streams {
		m.text = fmt.Appendf(m.text, "%s %d\n", name, m.ends[name])
	}
	m.text = fmt.Appendf(m.text, "%08x\n", crc32.Checksum(m.text, codec.Castagnoli))
	_, _ = m.f.WriteAt(m.text, 0)
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
	ends := make(map[string]uint64)
	rest := string(text)
	for range codec.Streams {
		line, after, _ := strings.Cut(rest, "\n")
		var name string
		var seq uint64
		if n, err := fmt.Sscanf(line, "%s %d", &name, &seq); n != 2 || err != nil {
			return nil
		}
		ends[name], rest = seq, after
	}
	var sum uint32
	body := text[:len(text)-len(rest)]
	if n, err := fmt.Sscanf(rest, "%08x", &sum); n != 1 || err != nil || sum != crc32.Checksum(body, codec.Castagnoli) {
		return nil
	}
	return ends
}
