package road

import "sync"

// Doubt is a reason why what a source shows of roads is not believed.
type Doubt uint8

const (
	Old   Doubt = iota // a reading older than a day when it was stored, of an operator's own car 28 days
	Fast               // a quarter hour that was limited to 1.3 times the speed of others
	Share              // a new stretch beyond the source's share of them
	NumDoubts
)

func (d Doubt) String() string { return [...]string{"old", "fast", "share"}[d] }

type Doubts [NumDoubts]uint64

// doubts counts by number of the source. mu guards by.
type doubts struct {
	mu sync.Mutex
	by map[uint32]Doubts
}

func (d *doubts) add(source uint32, why Doubt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil {
		d.by = make(map[uint32]Doubts)
	}
	n := d.by[source]
	n[why]++
	d.by[source] = n
}

func (m *Map) Doubts(source uint32) Doubts {
	m.doubts.mu.Lock()
	defer m.doubts.mu.Unlock()
	return m.doubts.by[source]
}

func (m *Map) Doubted(why Doubt) (n uint64) {
	m.doubts.mu.Lock()
	defer m.doubts.mu.Unlock()
	for _, of := range m.doubts.by {
		n += of[why]
	}
	return n
}

// Forget discards what is known of the stretches whose middle is in a box, and returns their
// number. Cars teach them again.
func (m *Map) Forget(b Box) (n int) {
	m.ConditionsIn(b, 0, func(c Condition) bool {
		sh := m.shardOf(c.Stretch)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if i, ok := sh.find(c.Stretch); ok {
			s := sh.at(i)
			*s = stretch{name: s.name, lead: s.lead, alone: s.alone, changed: s.changed || s.free != 0}
			delete(sh.late, i)
			n++
		}
		return true
	})
	return n
}
