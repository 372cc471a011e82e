package disk

import (
	"bytes"
	"fmt"
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

// afterCuts does something to a new disk and cuts the power, with many seeds, and
// counts what is found then.
func afterCuts(t *testing.T, do func(h hand)) map[string]int {
	t.Helper()
	found := map[string]int{}
	for seed := range uint64(300) {
		h := hand{t, New()}
		do(h)
		h.CutAfter(0)
		found[fmt.Sprint(hand{t, h.After(rand.New(rand.NewPCG(seed, 0)))}.tree())]++
	}
	return found
}

// What may be found after a cut, and nothing else. Each of it turns up.
func TestWhatACutLeaves(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(h hand)
		want []string
	}{
		{"nothing was synced", func(h hand) {
			h.make("a", file)
			h.write("a", "x", 0)
		}, []string{"map[]", "map[a:]", "map[a:x]", "map[a:\x00]"}},
		{"a file was synced, and with it the way to it", func(h hand) {
			h.make("d", dir)
			h.make("d/e", dir)
			h.make("d/e/a", file)
			h.write("d/e/a", "x", 0)
			h.sync("d/e/a")
		}, []string{"map[d:/ d/e:/ d/e/a:x]"}},
		{"only data was synced", func(h hand) {
			h.make("a", file)
			h.write("a", "x", 0)
			h.must(h.SyncData(h.node("a")))
		}, []string{"map[]", "map[a:x]"}},
		{"a directory was synced, its file was not", func(h hand) {
			h.make("a", file)
			h.write("a", "x", 0)
			h.syncDir("")
		}, []string{"map[a:]", "map[a:x]", "map[a:\x00]"}},
		{"appended to a synced file", func(h hand) {
			h.make("a", file)
			h.write("a", "x", 0)
			h.sync("a")
			h.write("a", "y", 1)
		}, []string{"map[a:x]", "map[a:xy]", "map[a:x\x00]"}},
		{"renamed over another", func(h hand) {
			for _, name := range []string{"a", "b"} {
				h.make(name, file)
				h.write(name, name, 0)
				h.sync(name)
			}
			h.rename("a", "b")
		}, []string{"map[a:a b:b]", "map[b:a]"}},
		{"renamed, and the directory synced", func(h hand) {
			for _, name := range []string{"a", "b"} {
				h.make(name, file)
				h.write(name, name, 0)
				h.sync(name)
			}
			h.rename("a", "b")
			h.syncDir("")
		}, []string{"map[b:a]"}},
		{"renamed without a sync of the file", func(h hand) {
			h.make("a", file)
			h.write("a", "x", 0)
			h.rename("a", "b")
			h.syncDir("")
		}, []string{"map[b:]", "map[b:x]", "map[b:\x00]"}},
		{"removed", func(h hand) {
			h.make("a", file)
			h.make("b", file)
			h.syncDir("")
			h.remove("a", false)
			h.remove("b", false)
		}, []string{"map[a: b:]", "map[a:]", "map[b:]", "map[]"}},
		{"removed, and the directory synced", func(h hand) {
			h.make("d", dir)
			h.make("d/a", file)
			h.sync("d/a")
			h.remove("d/a", false)
			h.syncDir("d")
		}, []string{"map[d:/]"}},
		{"linked, and the first name removed", func(h hand) {
			h.make("a", file)
			h.write("a", "x", 0)
			h.sync("a")
			linked, err := h.Link(h.node("a"), Root, "b")
			h.must(err)
			h.Forget(linked.Node, 1)
			h.syncDir("")
			h.remove("a", false)
		}, []string{"map[a:x b:x]", "map[b:x]"}},
		{"cut short", func(h hand) {
			h.make("a", file)
			h.write("a", "xyz", 0)
			h.sync("a")
			h.must(h.Truncate(h.node("a"), 1))
		}, []string{"map[a:xyz]", "map[a:x]"}},
		{"a directory removed with all in it", func(h hand) {
			h.make("d", dir)
			h.make("d/a", file)
			h.sync("d/a")
			h.remove("d/a", false)
			h.remove("d", true)
			h.syncDir("")
		}, []string{"map[]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := afterCuts(t, c.do)
			for _, want := range c.want {
				if found[want] == 0 {
					t.Errorf("never found: %q", want)
				}
				delete(found, want)
			}
			for tree := range found {
				t.Errorf("found %q", tree)
			}
		})
	}
}

// Of what was written and not synced any page may be lost, in the middle too, and
// a page may be torn. What was synced stays.
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

// The cut comes after as many operations as were asked for, and then nothing works.
func TestCutAfter(t *testing.T) {
	h := hand{t, New()}
	h.CutAfter(2)
	h.make("a", file)
	h.write("a", "x", 0)
	node := h.node("a")
	select {
	case <-h.Cut():
		t.Fatal("too early")
	default:
	}
	if err := h.Write(node, []byte("y"), 0); err != syscall.EIO {
		t.Fatal(err)
	}
	<-h.Cut()
	if _, err := h.Stat(node); err != syscall.EIO {
		t.Error(err)
	}
	if h.Operations() < 2 {
		t.Error(h.Operations())
	}
}

// What a program may ask for and is refused.
func TestRefusals(t *testing.T) {
	h := hand{t, New()}
	h.make("d", dir)
	h.make("d/a", file)
	d, a := h.node("d"), h.node("d/a")
	for i, c := range []struct{ got, want error }{
		{h.Remove(Root, "d", true), syscall.ENOTEMPTY},
		{h.Remove(Root, "d", false), syscall.EISDIR},
		{h.Remove(d, "a", true), syscall.ENOTDIR},
		{h.Remove(d, "b", false), syscall.ENOENT},
		{h.Remove(a, "b", false), syscall.ENOTDIR},
		{h.Rename(d, "a", Root, "d"), syscall.EISDIR},
		{h.Rename(Root, "d", d, "a"), syscall.ENOTDIR},
		{h.Write(d, nil, 0), syscall.EISDIR},
		{h.SyncDir(a), syscall.ENOTDIR},
		{h.Sync(12345), syscall.ESTALE},
	} {
		if c.got != c.want {
			t.Errorf("%d: %v, want %v", i, c.got, c.want)
		}
	}
	if _, err := h.Make(d, "a", file); err != syscall.EEXIST {
		t.Error(err)
	}
	if _, err := h.Link(a, Root, "d"); err != syscall.EEXIST {
		t.Error(err)
	}
	h.must(h.Chmod(a, 0o400))
	if s, _ := h.Stat(a); s.Mode != syscall.S_IFREG|0o400 || s.Links != 1 {
		t.Errorf("%+v", s)
	}
}

// The worst for who relies on an order: names ahead of data. An aimed cut comes when
// they are, and not before.
func TestCutAhead(t *testing.T) {
	h := hand{t, New()}
	h.CutAhead()
	h.make("a", file)
	h.write("a", "old", 0)
	h.sync("a")
	h.make("d", dir)
	h.make("d/b", file)
	h.write("d/b", "new", 0)
	h.syncDir("") // nothing in it is behind
	in, name := split("a")
	if err := h.Remove(h.node(in), name, false); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Cut():
		t.Fatal("too early")
	default:
	}
	h.syncDir("d")
	<-h.Cut()
	if got := fmt.Sprint(hand{t, h.After(nil)}.tree()); got != "map[d:/ d/b:]" {
		t.Error(got)
	}
}

// Files that come and go leave nothing behind, so that a long run fits in memory.
func TestNothingPilesUp(t *testing.T) {
	h := hand{t, New()}
	for i := range 3 * changeLimit {
		name := fmt.Sprintf("f%d", i)
		h.make(name, file)
		h.write(name, "x", 0)
		h.sync(name)
		h.remove(name, false)
	}
	if len(h.nodes) > 2*changeLimit || len(h.waiting) > changeLimit {
		t.Errorf("%d nodes, %d changes", len(h.nodes), len(h.waiting))
	}
	h.syncDir("")
	if len(h.nodes) != 1 || len(h.waiting) != 0 {
		t.Errorf("%d nodes, %d changes after all is durable", len(h.nodes), len(h.waiting))
	}
}

func TestReadAndTruncate(t *testing.T) {
	h := hand{t, New()}
	h.make("a", file)
	h.write("a", "tail", 3*pageBytes-2)
	a := h.node("a")
	h.must(h.Truncate(a, 3*pageBytes-1))
	h.must(h.Truncate(a, 3*pageBytes+1))
	buf := bytes.Repeat([]byte{1}, 10)
	if n, err := h.Read(a, buf, 3*pageBytes-3); err != nil || string(buf[:n]) != "\x00t\x00\x00" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}
