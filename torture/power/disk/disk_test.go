package disk

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

const (
	file = syscall.S_IFREG | 0o600
	dir  = syscall.S_IFDIR | 0o700
)

// hand does things to a disk by path, as a program does.
type hand struct {
	t *testing.T
	*Disk
}

func (h hand) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h hand) node(path string) uint64 {
	h.t.Helper()
	at := uint64(Root)
	for name := range strings.SplitSeq(path, "/") {
		if name == "" {
			continue
		}
		a, err := h.Lookup(at, name)
		h.must(err)
		h.Forget(a.Node, 1)
		at = a.Node
	}
	return at
}

func split(path string) (string, string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

func (h hand) make(path string, mode uint32) {
	h.t.Helper()
	in, name := split(path)
	a, err := h.Make(h.node(in), name, mode)
	h.must(err)
	h.Forget(a.Node, 1)
}

func (h hand) write(path, text string, at int64) {
	h.t.Helper()
	h.must(h.Write(h.node(path), []byte(text), at))
}

func (h hand) sync(path string)    { h.t.Helper(); h.must(h.Sync(h.node(path))) }
func (h hand) syncDir(path string) { h.t.Helper(); h.must(h.SyncDir(h.node(path))) }

func (h hand) rename(from, to string) {
	h.t.Helper()
	in, name := split(from)
	newIn, newName := split(to)
	h.must(h.Rename(h.node(in), name, h.node(newIn), newName))
}

func (h hand) remove(path string, isDir bool) {
	h.t.Helper()
	in, name := split(path)
	h.must(h.Remove(h.node(in), name, isDir))
}

// tree is every path and what is there: the text of a file, "/" for a directory.
func (h hand) tree() map[string]string {
	h.t.Helper()
	found := map[string]string{}
	var walk func(uint64, string)
	walk = func(node uint64, path string) {
		entries, err := h.List(node)
		h.must(err)
		for _, e := range entries {
			at := path + e.Name
			if e.Mode&syscall.S_IFMT == syscall.S_IFDIR {
				found[at] = "/"
				walk(e.Node, at+"/")
				continue
			}
			a, err := h.Stat(e.Node)
			h.must(err)
			text := make([]byte, a.Size)
			n, err := h.Read(e.Node, text, 0)
			h.must(err)
			found[at] = string(text[:n])
		}
	}
	walk(Root, "")
	return found
}

// What a cut may leave of a write that was torn, and nothing else. Each turns up.
func TestTornWrites(t *testing.T) {
	synced, written := strings.Repeat("a", 3*pageBytes), strings.Repeat("b", 3*pageBytes)
	hole, torn, short, old := 0, 0, 0, 0
	for seed := range uint64(500) {
		h := hand{t, New()}
		h.make("f", file)
		h.write("f", synced, 0)
		h.sync("f")
		h.write("f", written, 2*pageBytes) // over the last page, and two more
		h.CutAfter(0)
		text := hand{t, h.After(rand.New(rand.NewPCG(seed, 0)))}.tree()["f"]
		if len(text) < len(synced) || len(text) > 5*pageBytes || text[:2*pageBytes] != synced[:2*pageBytes] {
			t.Fatalf("seed %d: %d bytes, and not what was synced", seed, len(text))
		}
		if strings.ContainsRune(strings.TrimRight(text, "\x00"), 0) {
			hole++
		}
		if page := text[2*pageBytes : 3*pageBytes]; strings.Contains(page, "a") && strings.Contains(page, "b") {
			torn++
		} else if page[0] == 'a' {
			old++
		}
		if len(text) < 5*pageBytes {
			short++
		}
		for sector := range strings.SplitSeq(text[2*pageBytes:len(text)/sectorBytes*sectorBytes], "") {
			if !strings.Contains("ab\x00", sector) {
				t.Fatalf("seed %d: a byte nobody wrote", seed)
			}
		}
	}
	if hole == 0 || torn == 0 || short == 0 || old == 0 {
		t.Errorf("%d holes, %d torn pages, %d short, %d as they were", hole, torn, short, old)
	}
}
