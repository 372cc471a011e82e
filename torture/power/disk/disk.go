// Package disk is a file system in memory that knows what a power cut leaves of
// it. It keeps every file and every directory twice: as everybody sees it, and
// as it is durable.
//
//   - To sync a file makes its data and its size durable, and the names by which
//     it is known, with the directories above them.
//   - To sync a directory makes all that was done to its entries durable.
//   - Anything else may or may not survive: of written data all, nothing, the
//     beginning, or any pages and sectors; of names that were made, changed or
//     removed each by itself, except that a rename happens as a whole or not at
//     all, and that what was done to one name happens in order.
//   - Modes are durable at once. So is what changeLimit later changes of names
//     have followed: a disk does not wait for ever.
//
// It is the strictest that ext4, XFS and Btrfs are known to be together, and
// stricter than each of them alone, which write down changes of names in order.
//
// It knows nothing of the kernel: package mount shows it to that.
package disk

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// changeLimit is how many changes of names may wait to become durable.
const changeLimit = 1024

// Root is the number of the directory that everything is in.
const Root = 1

// Disk is a file system. Safe for concurrent use; every method happens as a
// whole, before the cut or not at all.
type Disk struct {
	mu      sync.Mutex
	nodes   map[uint64]*node
	newest  uint64    // number of the newest node
	waiting []*change // changes of names that are not durable, the oldest first

	operations uint64 // that changed something or made it durable
	cutAt      uint64 // operations before the cut; 0: no cut is planned
	aimed      bool   // cut at the next step ahead
	isCut      bool
	cut        chan struct{} // closed at the cut
}

// node is a file or a directory.
type node struct {
	number uint64
	mode   uint32 // type and permissions, as stat shows them
	time   time.Time
	file   data    // of a file
	now    entries // of a directory
	stored entries // what is durable of it
	parent uint64  // of a directory

	// The node goes when nothing knows it any more.
	names, storedNames, inChanges int
	held                          uint64 // how often the kernel knows it
}

type entries map[string]uint64

func (n *node) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

// New returns an empty file system.
func New() *Disk {
	d := &Disk{nodes: map[uint64]*node{}, cut: make(chan struct{})}
	root := d.make(syscall.S_IFDIR | 0o755)
	root.names, root.storedNames = 1, 1
	return d
}

func (d *Disk) make(mode uint32) *node {
	d.newest++
	n := &node{number: d.newest, mode: mode, time: time.Now()}
	if n.isDir() {
		n.now, n.stored = entries{}, entries{}
	} else {
		n.file = newData(content{pages: map[int64]*page{}})
	}
	d.nodes[n.number] = n
	return n
}

// CutAfter plans the power cut for when so many more operations were done that
// change something or make it durable. Zero cuts at once.
func (d *Disk) CutAfter(operations uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutAt = d.operations + operations
	if operations == 0 {
		d.cutNow()
	}
}

// CutAhead plans the power cut for when something becomes durable in a directory
// ahead of what was written there before: entries of it, while one of its files
// holds data that is not durable. Whoever relies on their order loses then.
func (d *Disk) CutAhead() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.aimed = true
}

// ahead cuts the power if that was planned for what was just done to a directory.
func (d *Disk) ahead(dir *node) {
	if !d.aimed {
		return
	}
	for _, number := range dir.now {
		if n := d.nodes[number]; !n.isDir() && n.file.unsynced() {
			d.cutNow()
			return
		}
	}
}

// Cut is closed when the power is cut. From then on everything fails.
func (d *Disk) Cut() <-chan struct{} { return d.cut }

// Operations is how many operations have changed something or made it durable.
func (d *Disk) Operations() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.operations
}

func (d *Disk) cutNow() {
	if !d.isCut {
		d.isCut = true
		close(d.cut)
	}
}

// alive reports why nothing can be done any more. d.mu is held.
func (d *Disk) alive() error {
	if d.isCut {
		return syscall.EIO
	}
	return nil
}

// changing is alive for an operation that changes something, and counts it.
func (d *Disk) changing() error {
	if !d.isCut && d.cutAt > 0 && d.operations >= d.cutAt {
		d.cutNow()
	}
	d.operations++
	return d.alive()
}

// After is the file system as it may be found when the power is back, which
// comes from rng where it may be this or that. Without rng it is the worst for who
// relies on an order: all that was done to names is there, and of data only what
// was synced. The disk must have been cut.
func (d *Disk) After(rng *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isCut {
		panic("disk: looked at what a cut leaves before the cut")
	}
	d.settle(d.survivors(rng))
	next := &Disk{nodes: map[uint64]*node{}, newest: d.newest, cut: make(chan struct{})}
	next.grow(d, d.nodes[Root], rng)
	next.nodes[Root].names, next.nodes[Root].storedNames = 1, 1
	return next
}

// grow takes in a node of a disk that was cut and all that is below it.
func (d *Disk) grow(was *Disk, n *node, rng *rand.Rand) {
	grown := &node{number: n.number, mode: n.mode, time: n.time, parent: n.parent}
	d.nodes[n.number] = grown
	if !n.isDir() {
		grown.file = newData(n.file.after(rng))
		return
	}
	grown.now, grown.stored = entries{}, entries{}
	for _, name := range n.stored.sorted() {
		number := n.stored[name]
		grown.now[name], grown.stored[name] = number, number
		if d.nodes[number] == nil {
			d.grow(was, was.nodes[number], rng)
		}
		below := d.nodes[number]
		below.parent = n.number
		below.names++
		below.storedNames++
	}
}
