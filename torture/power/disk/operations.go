package disk

import (
	"syscall"
	"time"
)

// Attr is what stat shows of a file or a directory.
type Attr struct {
	Node  uint64
	Mode  uint32
	Size  int64
	Links int
	Time  time.Time
}

func (n *node) attr() Attr {
	a := Attr{Node: n.number, Mode: n.mode, Size: n.file.now.size, Links: n.names, Time: n.time}
	if n.isDir() {
		a.Links++
	}
	return a
}

// Entry is a name in a directory.
type Entry struct {
	Name string
	Node uint64
	Mode uint32
}

// find returns a node. d.mu is held.
func (d *Disk) find(number uint64) (*node, error) {
	if n := d.nodes[number]; n != nil {
		return n, nil
	}
	return nil, syscall.ESTALE
}

func (d *Disk) findDir(number uint64) (*node, error) {
	n, err := d.find(number)
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	return n, err
}

func (d *Disk) findFile(number uint64) (*node, error) {
	n, err := d.find(number)
	if err == nil && n.isDir() {
		err = syscall.EISDIR
	}
	return n, err
}

// findEntry returns a directory, and what has a name in it.
func (d *Disk) findEntry(dir uint64, name string) (in, n *node, err error) {
	if in, err = d.findDir(dir); err != nil {
		return nil, nil, err
	}
	if n = d.nodes[in.now[name]]; n == nil {
		return in, nil, syscall.ENOENT
	}
	return in, n, nil
}

// Lookup finds a name. Who asks knows the node until [Disk.Forget].
func (d *Disk) Lookup(dir uint64, name string) (Attr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.alive(); err != nil {
		return Attr{}, err
	}
	_, n, err := d.findEntry(dir, name)
	if err != nil {
		return Attr{}, err
	}
	n.held++
	return n.attr(), nil
}

// Forget takes back that somebody knows a node.
func (d *Disk) Forget(number, times uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.nodes[number]; n != nil {
		n.held -= min(times, n.held)
		d.drop(n)
	}
}

// on does something to a node, as a whole: may it be done, and is it there?
func (d *Disk) on(number uint64, may func() error, find func(uint64) (*node, error), do func(*node)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := may(); err != nil {
		return err
	}
	n, err := find(number)
	if err == nil {
		do(n)
	}
	return err
}

// Stat shows a node.
func (d *Disk) Stat(number uint64) (a Attr, err error) {
	err = d.on(number, d.alive, d.find, func(n *node) { a = n.attr() })
	return a, err
}

// List shows what is in a directory, by name.
func (d *Disk) List(dir uint64) (all []Entry, err error) {
	err = d.on(dir, d.alive, d.findDir, func(n *node) {
		for _, name := range n.now.sorted() {
			all = append(all, Entry{name, n.now[name], d.nodes[n.now[name]].mode})
		}
	})
	return all, err
}

// Make makes a file or a directory, as the mode says. Who asks knows the node
// until [Disk.Forget].
func (d *Disk) Make(dir uint64, name string, mode uint32) (Attr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.changing(); err != nil {
		return Attr{}, err
	}
	switch _, _, err := d.findEntry(dir, name); err {
	case nil:
		return Attr{}, syscall.EEXIST
	case syscall.ENOENT:
	default:
		return Attr{}, err
	}
	n := d.make(mode)
	n.held++
	d.put(change{[]entry{{place{dir, name}, n.number}}})
	return n.attr(), nil
}

// Remove removes a name: that of an empty directory if isDir, else of a file.
func (d *Disk) Remove(dir uint64, name string, isDir bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.changing(); err != nil {
		return err
	}
	in, n, err := d.findEntry(dir, name)
	switch {
	case err != nil:
		return err
	case n.isDir() && !isDir:
		return syscall.EISDIR
	case !n.isDir() && isDir:
		return syscall.ENOTDIR
	case len(n.now) > 0:
		return syscall.ENOTEMPTY
	}
	d.put(change{[]entry{{place{dir, name}, 0}}})
	d.ahead(in)
	return nil
}

// Rename gives a node another name, in place of what had that.
func (d *Disk) Rename(dir uint64, name string, newDir uint64, newName string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.changing(); err != nil {
		return err
	}
	_, n, err := d.findEntry(dir, name)
	if err != nil {
		return err
	}
	switch _, old, err := d.findEntry(newDir, newName); {
	case err == syscall.ENOENT:
	case err != nil:
		return err
	case old == n:
		return nil
	case old.isDir() != n.isDir() && n.isDir():
		return syscall.ENOTDIR
	case old.isDir() != n.isDir():
		return syscall.EISDIR
	case len(old.now) > 0:
		return syscall.ENOTEMPTY
	}
	d.put(change{[]entry{{place{newDir, newName}, n.number}, {place{dir, name}, 0}}})
	return nil
}

// Link gives a file one more name. Who asks knows the node until [Disk.Forget].
func (d *Disk) Link(number, dir uint64, name string) (Attr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.changing(); err != nil {
		return Attr{}, err
	}
	n, err := d.findFile(number)
	if err != nil {
		return Attr{}, err
	}
	switch _, _, err := d.findEntry(dir, name); err {
	case nil:
		return Attr{}, syscall.EEXIST
	case syscall.ENOENT:
	default:
		return Attr{}, err
	}
	n.held++
	d.put(change{[]entry{{place{dir, name}, number}}})
	return n.attr(), nil
}

// Read fills a buffer from a file and returns how much there was.
func (d *Disk) Read(number uint64, to []byte, at int64) (got int, err error) {
	err = d.on(number, d.alive, d.findFile, func(n *node) { got = n.file.now.read(to, at) })
	return got, err
}

// Write writes into a file.
func (d *Disk) Write(number uint64, from []byte, at int64) error {
	return d.on(number, d.changing, d.findFile, func(n *node) {
		n.file.write(from, at)
		n.time = time.Now()
	})
}

// Truncate sets a file's size.
func (d *Disk) Truncate(number uint64, size int64) error {
	return d.on(number, d.changing, d.findFile, func(n *node) {
		n.file.truncate(size)
		n.time = time.Now()
	})
}

// Sync makes a file durable: its data, its size and its names.
func (d *Disk) Sync(number uint64) error {
	return d.on(number, d.changing, d.findFile, func(n *node) {
		n.file.sync()
		d.settleNames(n)
	})
}

// SyncData makes a file's data and size durable.
func (d *Disk) SyncData(number uint64) error {
	return d.on(number, d.changing, d.findFile, func(n *node) { n.file.sync() })
}

// SyncDir makes a directory durable: what was done to its entries, and its name.
func (d *Disk) SyncDir(number uint64) error {
	return d.on(number, d.changing, d.findDir, func(n *node) {
		d.settleEntries(n)
		d.settleNames(n)
		d.ahead(n)
	})
}

// Chmod sets the permissions of a node, durably.
func (d *Disk) Chmod(number uint64, permissions uint32) error {
	return d.on(number, d.changing, d.find, func(n *node) { n.mode = n.mode&syscall.S_IFMT | permissions&^uint32(syscall.S_IFMT) })
}
