package disk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// place is where a name stands.
type place struct {
	dir  uint64
	name string
}

// entry is a place and what is to stand there: 0 for nothing.
type entry struct {
	place
	node uint64
}

// change is what one operation does to names. It becomes durable as a whole.
type change struct{ entries []entry }

func (e entries) sorted() []string { return slices.Sorted(maps.Keys(e)) }

// put carries out a change for everybody to see, and leaves it waiting.
func (d *Disk) put(c change) {
	for _, e := range c.entries {
		if old := d.nodes[d.nodes[e.dir].now[e.name]]; old != nil {
			old.names--
		}
		if e.node == 0 {
			delete(d.nodes[e.dir].now, e.name)
			continue
		}
		n := d.nodes[e.node]
		d.nodes[e.dir].now[e.name] = e.node
		n.names++
		n.inChanges++
		if n.isDir() {
			n.parent = e.dir
		}
	}
	for _, e := range c.entries {
		d.nodes[e.dir].inChanges++
	}
	d.waiting = append(d.waiting, &c)
	if len(d.waiting) > changeLimit {
		oldest := map[*change]bool{}
		for _, c := range d.waiting[:changeLimit/2] {
			oldest[c] = true
		}
		d.settle(oldest)
	}
}

// settle makes changes durable, with those before them of the same names.
func (d *Disk) settle(chosen map[*change]bool) {
	if len(chosen) == 0 {
		return
	}
	places := map[place]bool{}
	for _, c := range slices.Backward(d.waiting) {
		if !chosen[c] && !slices.ContainsFunc(c.entries, func(e entry) bool { return places[e.place] }) {
			continue
		}
		chosen[c] = true
		for _, e := range c.entries {
			places[e.place] = true
		}
	}
	left := d.waiting[:0]
	for _, c := range d.waiting {
		if !chosen[c] {
			left = append(left, c)
			continue
		}
		d.store(c)
	}
	clear(d.waiting[len(left):])
	d.waiting = left
}

func (d *Disk) store(c *change) {
	var touched []*node
	for _, e := range c.entries {
		dir := d.nodes[e.dir]
		if old := d.nodes[dir.stored[e.name]]; old != nil {
			old.storedNames--
			touched = append(touched, old)
		}
		if e.node == 0 {
			delete(dir.stored, e.name)
		} else {
			n := d.nodes[e.node]
			dir.stored[e.name] = e.node
			n.storedNames++
			n.inChanges--
			touched = append(touched, n)
		}
		dir.inChanges--
		touched = append(touched, dir)
	}
	for _, n := range touched {
		d.drop(n)
	}
}

// drop forgets a node that nothing knows any more.
func (d *Disk) drop(n *node) {
	if n.names != 0 || n.storedNames != 0 || n.inChanges != 0 || n.held != 0 || d.nodes[n.number] != n {
		return
	}
	delete(d.nodes, n.number)
}

// settleNames makes the names of a node durable, and the way to them.
func (d *Disk) settleNames(n *node) {
	chosen := map[*change]bool{}
	wanted := map[uint64]bool{n.number: true}
	above := func(dir uint64) {
		for at := d.nodes[dir]; at != nil && !wanted[at.number]; at = d.nodes[at.parent] {
			wanted[at.number] = true
		}
	}
	if n.isDir() {
		above(n.parent)
	}
	for _, c := range d.waiting {
		for _, e := range c.entries {
			if e.node == n.number {
				above(e.dir)
			}
		}
	}
	for _, c := range d.waiting {
		if slices.ContainsFunc(c.entries, func(e entry) bool { return e.node != 0 && wanted[e.node] }) {
			chosen[c] = true
		}
	}
	d.settle(chosen)
}

// settleEntries makes durable what was done in a directory.
func (d *Disk) settleEntries(n *node) {
	chosen := map[*change]bool{}
	for _, c := range d.waiting {
		if slices.ContainsFunc(c.entries, func(e entry) bool { return e.dir == n.number }) {
			chosen[c] = true
		}
	}
	d.settle(chosen)
}

// survivors are the changes that reach the disk before the power is gone: none,
// all, the first ones, or any.
func (d *Disk) survivors(rng *rand.Rand) map[*change]bool {
	how, first := 1, 0
	if rng != nil {
		how, first = rng.IntN(4), rng.IntN(len(d.waiting)+1)
	}
	chosen := map[*change]bool{}
	for i, c := range d.waiting {
		if how == 1 || how == 2 && i < first || how == 3 && rng.IntN(2) == 0 {
			chosen[c] = true
		}
	}
	return chosen
}
