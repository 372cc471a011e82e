package road

import "sync"

type Doubt uint8

const (
	Old   Doubt = iota // a reading was older than a day when it was stored, or 28 days if its source is trusted
	Fast               // a source's quarter hour was limited to 1.3 times the speed of others
	Share              // a new stretch is beyond the source's share
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

// Forget discards stretches, and returns how many. Cars teach them again.
func (m *Map) Forget(b Box) (n int) {
	m.ConditionsIn(b, 0, func(c Condition) {
		sh := m.shardOf(c.Stretch)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if i, ok := sh.find(c.Stretch); ok {
			s := sh.at(i)
			*s = stretch{name: s.name, lead: s.lead, alone: s.alone, changed: s.changed || s.free != 0}
			delete(sh.late, i)
			n++
		}
	})
	return n
}
