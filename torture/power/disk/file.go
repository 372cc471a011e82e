package disk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

const (
	pageBytes   = 4096
	sectorBytes = 512
)

type page [pageBytes]byte

// content is what a file holds at one time: its size, and the pages in which
// something was ever written. A page that is not there reads as zeros. Pages are
// shared between contents and never changed while two of them have them.
type content struct {
	size  int64
	pages map[int64]*page
}

// data is what a file holds, twice: as everybody reads it, and as it was last
// made durable.
type data struct {
	now, durable content
	dirty        map[int64]bool // pages of now that are not durable
	low          int64          // the smallest size since the file was last made durable
}

func newData(c content) data {
	return data{now: content{c.size, maps.Clone(c.pages)}, durable: c, dirty: map[int64]bool{}, low: c.size}
}

// read fills a buffer from an offset and returns how much there was.
func (c *content) read(to []byte, at int64) int {
	if at >= c.size {
		return 0
	}
	to = to[:min(int64(len(to)), c.size-at)]
	for done := 0; done < len(to); {
		number, from := (at+int64(done))/pageBytes, (at+int64(done))%pageBytes
		part := to[done:min(len(to), done+int(pageBytes-from))]
		if p := c.pages[number]; p != nil {
			copy(part, p[from:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	return len(to)
}

// page returns a page of now to be written.
func (d *data) page(number int64) *page {
	p := d.now.pages[number]
	if p == nil || p == d.durable.pages[number] {
		own := new(page)
		if p != nil {
			*own = *p
		}
		p = own
		d.now.pages[number] = p
	}
	d.dirty[number] = true
	return p
}

func (d *data) write(from []byte, at int64) {
	for len(from) > 0 {
		n := copy(d.page(at / pageBytes)[at%pageBytes:], from)
		from, at = from[n:], at+int64(n)
		d.now.size = max(d.now.size, at)
	}
}

func (d *data) truncate(size int64) {
	if size < d.now.size {
		for number := range d.now.pages {
			if number*pageBytes >= size {
				delete(d.now.pages, number)
				delete(d.dirty, number)
			}
		}
		if size%pageBytes != 0 && d.now.pages[size/pageBytes] != nil {
			clear(d.page(size / pageBytes)[size%pageBytes:])
		}
		d.low = min(d.low, size)
	}
	d.now.size = size
}

// sync makes what everybody reads durable.
func (d *data) sync() {
	d.durable.cutOff(d.low)
	for number := range d.dirty {
		d.durable.pages[number] = d.now.pages[number]
	}
	clear(d.dirty)
	d.durable.size, d.low = d.now.size, d.now.size
}

// cutOff shortens what is held to a size; what lies behind it reads as zeros.
func (c *content) cutOff(size int64) {
	if size >= c.size {
		return
	}
	for number, p := range c.pages {
		switch from := size - number*pageBytes; {
		case from <= 0:
			delete(c.pages, number)
		case from < pageBytes:
			own := *p
			clear(own[from:])
			c.pages[number] = &own
		}
	}
	c.size = size
}

// unsynced reports whether a cut may lose something of the file.
func (d *data) unsynced() bool {
	return len(d.dirty) > 0 || d.low != d.durable.size || d.now.size != d.durable.size
}

// after is what the file may hold after a cut: what is durable, and of the rest
// nothing, all, the beginning, or any of its pages and sectors. What never
// arrived reads as it was before, or as zeros.
func (d *data) after(rng *rand.Rand) content {
	was, is := content{d.durable.size, maps.Clone(d.durable.pages)}, content{d.now.size, maps.Clone(d.now.pages)}
	if rng == nil || !d.unsynced() {
		return was
	}
	how := rng.IntN(4)
	switch how {
	case 0:
		return was // even if it was cut short since
	case 1:
		return is
	}
	was.cutOff(d.low)
	was.size += rng.Int64N(max(0, is.size-was.size) + 1)
	for _, number := range slices.Sorted(maps.Keys(d.dirty)) {
		arrived := d.now.pages[number]
		if how == 2 {
			was.pages[number] = arrived
			continue
		}
		switch rng.IntN(4) {
		case 0: // never arrived
		case 1, 2:
			was.pages[number] = arrived
		case 3:
			var torn page
			if p := was.pages[number]; p != nil {
				torn = *p
			}
			for at := 0; at < pageBytes; at += sectorBytes {
				if rng.IntN(2) == 0 {
					copy(torn[at:at+sectorBytes], arrived[at:])
				}
			}
			was.pages[number] = &torn
		}
	}
	end := was.size
	was.size = max(is.size, end) + 1
	was.cutOff(end)
	return was
}
