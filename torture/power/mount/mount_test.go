package mount

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"carstate/torture/power/disk"
)

// What the kernel asks for becomes durable when it must, and not before. The tree is
// asked directly: the tests have no /dev/fuse.
func TestWhatIsDurable(t *testing.T) {
	for name, c := range map[string]struct {
		flags   uint32
		then    func(tr *tree, node uint64) fuse.Status
		durable bool // data
		named   bool
	}{
		"written":        {0, nil, false, false},
		"fsync":          {0, func(tr *tree, n uint64) fuse.Status { return tr.Fsync(nil, fsync(n, 0)) }, true, true},
		"fdatasync":      {0, func(tr *tree, n uint64) fuse.Status { return tr.Fsync(nil, fsync(n, 1)) }, true, false},
		"fsync of a dir": {0, func(tr *tree, _ uint64) fuse.Status { return tr.FsyncDir(nil, fsync(disk.Root, 0)) }, false, true},
		"O_SYNC":         {syscall.O_SYNC, nil, true, true},
		"O_DSYNC":        {syscall.O_DSYNC, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tree{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: disk.New()}
			in := &fuse.CreateIn{Flags: syscall.O_CREAT | syscall.O_RDWR | c.flags, Mode: 0o600}
			in.NodeId = disk.Root
			var made fuse.CreateOut
			if s := tr.Create(nil, in, "f", &made); !s.Ok() {
				t.Fatal(s)
			}
			write := &fuse.WriteIn{Fh: made.Fh}
			write.NodeId = made.NodeId
			if n, s := tr.Writev(nil, write, [][]byte{[]byte("te"), []byte("xt")}); n != 4 || !s.Ok() {
				t.Fatal(n, s)
			}
			if c.then != nil {
				if s := c.then(tr, made.NodeId); !s.Ok() {
					t.Fatal(s)
				}
			}
			if !c.named { // so that the data can be looked at
				tr.FsyncDir(nil, fsync(disk.Root, 0))
			}
			tr.disk.CutAfter(0)
			if _, s := tr.Write(nil, write, []byte("x")); s != fuse.EIO {
				t.Error("written after the cut:", s)
			}
			after := &tree{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: tr.disk.After(nil)}
			var entry fuse.EntryOut
			if s := after.Lookup(nil, &fuse.InHeader{NodeId: disk.Root}, "f", &entry); !s.Ok() {
				t.Fatal(s)
			}
			read := &fuse.ReadIn{Size: 10}
			read.NodeId = entry.NodeId
			buf := make([]byte, 10)
			got, s := after.Read(nil, read, buf)
			if !s.Ok() {
				t.Fatal(s)
			}
			text, _ := got.Bytes(buf)
			if want := map[bool]string{true: "text"}[c.durable]; !bytes.Equal(text, []byte(want)) {
				t.Errorf("%q, want %q", text, want)
			}
		})
	}
}

func fsync(node uint64, flags uint32) *fuse.FsyncIn {
	in := &fuse.FsyncIn{FsyncFlags: flags}
	in.NodeId = node
	return in
}
