// Package mount shows a disk to the kernel, by FUSE. It decides nothing: what
// becomes durable when, and what a cut leaves, is the disk's.
package mount

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"carstate/torture/power/disk"
)

// Mount is a disk at its place in the tree. Whoever mounts it ends it.
type Mount struct {
	dir    string
	server *fuse.Server
}

// writeBytes is the most that the kernel hands over in one piece. A cut may fall
// between two pieces of what a program wrote at once.
const writeBytes = 128 << 10

// At mounts a disk over an empty directory.
func At(dir string, d *disk.Disk) (*Mount, error) {
	server, err := fuse.NewServer(&tree{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: d}, dir, &fuse.MountOptions{
		FsName: "power", Name: "power", MaxWrite: writeBytes, DirectMount: true,
		Options: []string{"default_permissions"}, DisableReadDirPlus: true,
		Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		return nil, fmt.Errorf("the file system cannot be mounted: %w", err)
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return nil, errors.Join(fmt.Errorf("the file system cannot be mounted: %w", err), server.Unmount())
	}
	return &Mount{dir, server}, nil
}

// End unmounts the disk. What is still open there is cut off.
func (m *Mount) End() error {
	err := m.server.Unmount()
	if err == nil {
		return nil
	}
	if syscall.Unmount(m.dir, syscall.MNT_DETACH) == nil {
		return nil
	}
	if exec.Command("fusermount3", "-u", "-z", m.dir).Run() == nil {
		return nil
	}
	return fmt.Errorf("%s cannot be unmounted: run umount -l %s: %w", m.dir, m.dir, err)
}

// Needs reports what this machine lacks to mount a disk, or nil.
func Needs() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return errors.New("the power cut needs /dev/fuse, readable and writable for this user: run as root where the kernel has FUSE")
	}
	f.Close()
	dir, err := os.MkdirTemp("", "carstate-power-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	m, err := At(dir, disk.New())
	if err != nil {
		return fmt.Errorf("the power cut needs to mount: run as root, or install fuse3: %w", err)
	}
	return m.End()
}

// known is how long the kernel may rely on what it was told: nobody else changes
// a disk.
const known = time.Hour

// tree answers the kernel.
type tree struct {
	fuse.RawFileSystem
	disk   *disk.Disk
	lists  sync.Map // by handle: []disk.Entry
	listed atomic.Uint64
}

func (t *tree) String() string { return "power" }

func status(err error) fuse.Status { return fuse.ToStatus(err) }

func fill(out *fuse.Attr, a disk.Attr) {
	out.Ino, out.Mode, out.Size, out.Nlink = a.Node, a.Mode, uint64(a.Size), uint32(a.Links)
	out.Blocks, out.Blksize = (out.Size+511)/512, 4096
	out.Uid, out.Gid = uint32(os.Getuid()), uint32(os.Getgid())
	out.SetTimes(&a.Time, &a.Time, &a.Time)
}

func fillEntry(out *fuse.EntryOut, a disk.Attr) {
	out.NodeId, out.Generation = a.Node, 1
	fill(&out.Attr, a)
	out.SetEntryTimeout(known)
	out.SetAttrTimeout(known)
}

func (t *tree) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	a, err := t.disk.Lookup(in.NodeId, name)
	if err == nil {
		fillEntry(out, a)
	}
	return status(err)
}

func (t *tree) Forget(node, times uint64) { t.disk.Forget(node, times) }

func (t *tree) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return t.stat(in.NodeId, out)
}

func (t *tree) stat(node uint64, out *fuse.AttrOut) fuse.Status {
	a, err := t.disk.Stat(node)
	if err == nil {
		fill(&out.Attr, a)
		out.SetTimeout(known)
	}
	return status(err)
}

func (t *tree) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if mode, ok := in.GetMode(); ok {
		if err := t.disk.Chmod(in.NodeId, mode); err != nil {
			return status(err)
		}
	}
	if size, ok := in.GetSize(); ok {
		if err := t.disk.Truncate(in.NodeId, int64(size)); err != nil {
			return status(err)
		}
	}
	return t.stat(in.NodeId, out)
}

func (t *tree) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	a, err := t.disk.Make(in.NodeId, name, in.Mode&0o7777|syscall.S_IFDIR)
	if err == nil {
		fillEntry(out, a)
	}
	return status(err)
}

func (t *tree) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	a, err := t.disk.Make(in.NodeId, name, in.Mode&0o7777|syscall.S_IFREG)
	if err != nil {
		return status(err)
	}
	fillEntry(&out.EntryOut, a)
	t.opened(in.Flags, &out.OpenOut)
	return fuse.OK
}

func (t *tree) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if _, err := t.disk.Stat(in.NodeId); err != nil {
		return status(err)
	}
	t.opened(in.Flags, out)
	return fuse.OK
}

// opened notes in the handle how a file was opened: each write may have to be
// durable.
func (t *tree) opened(flags uint32, out *fuse.OpenOut) {
	out.Fh = uint64(flags)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
}

func (t *tree) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return status(t.disk.Remove(in.NodeId, name, false))
}

func (t *tree) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return status(t.disk.Remove(in.NodeId, name, true))
}

func (t *tree) Rename(_ <-chan struct{}, in *fuse.RenameIn, name, newName string) fuse.Status {
	if in.Flags != 0 {
		return fuse.EINVAL // to exchange, or not to replace
	}
	return status(t.disk.Rename(in.NodeId, name, in.Newdir, newName))
}

func (t *tree) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	a, err := t.disk.Link(in.Oldnodeid, in.NodeId, name)
	if err == nil {
		fillEntry(out, a)
	}
	return status(err)
}

func (t *tree) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, err := t.disk.Read(in.NodeId, buf[:min(len(buf), int(in.Size))], int64(in.Offset))
	return fuse.ReadResultData(buf[:n]), status(err)
}

func (t *tree) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if err := t.disk.Write(in.NodeId, data, int64(in.Offset)); err != nil {
		return 0, status(err)
	}
	var err error
	switch flags := int(in.Fh); {
	case flags&syscall.O_SYNC == syscall.O_SYNC:
		err = t.disk.Sync(in.NodeId)
	case flags&syscall.O_DSYNC != 0:
		err = t.disk.SyncData(in.NodeId)
	}
	if err != nil {
		return 0, status(err)
	}
	return uint32(len(data)), fuse.OK
}

// Writev is for what the kernel hands over in parts.
func (t *tree) Writev(cancel <-chan struct{}, in *fuse.WriteIn, parts [][]byte) (uint32, fuse.Status) {
	if len(parts) == 1 {
		return t.Write(cancel, in, parts[0])
	}
	var all []byte
	for _, part := range parts {
		all = append(all, part...)
	}
	return t.Write(cancel, in, all)
}

func (t *tree) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (t *tree) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	const dataOnly = 1
	if in.FsyncFlags&dataOnly != 0 {
		return status(t.disk.SyncData(in.NodeId))
	}
	return status(t.disk.Sync(in.NodeId))
}

func (t *tree) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return status(t.disk.SyncDir(in.NodeId))
}

func (t *tree) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	entries, err := t.disk.List(in.NodeId)
	if err != nil {
		return status(err)
	}
	out.Fh = t.listed.Add(1)
	t.lists.Store(out.Fh, entries)
	return fuse.OK
}

// ReadDir goes on with the list that was made when the directory was opened, so
// that what is removed meanwhile moves nothing. Who rewinds gets a new one.
func (t *tree) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if in.Offset == 0 {
		entries, err := t.disk.List(in.NodeId)
		if err != nil {
			return status(err)
		}
		t.lists.Store(in.Fh, entries)
	}
	list, _ := t.lists.Load(in.Fh)
	entries, _ := list.([]disk.Entry)
	for i := int(in.Offset); i < len(entries); i++ {
		if !out.AddDirEntry(fuse.DirEntry{Name: entries[i].Name, Ino: entries[i].Node, Mode: entries[i].Mode, Off: uint64(i) + 1}) {
			break
		}
	}
	return fuse.OK
}

func (t *tree) ReleaseDir(in *fuse.ReleaseIn) { t.lists.Delete(in.Fh) }

func (t *tree) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const pages = 1 << 28 // a TiB
	*out = fuse.StatfsOut{Blocks: pages, Bfree: pages, Bavail: pages, Files: pages, Ffree: pages, Bsize: 4096, Frsize: 4096, NameLen: 255}
	return fuse.OK
}
