package road

type Doubt uint8

const (
	Old   Doubt = iota // a reading was older than a day when it was stored, or 28 days if its source is trusted
	Fast               // a source's speed in a quarter hour was limited to 1.3 times that of others
	Share              // a new stretch is beyond the source's share
	NumDoubts
)

func (d Doubt) String() string { return [...]string{"old", "fast", "share"}[d] }

func (m *Map) doubt(source uint32, why Doubt) {
	m.doubting.Lock()
	defer m.doubting.Unlock()
	if m.doubts == nil {
		m.doubts = make(map[uint32][NumDoubts]uint64)
	}
	n := m.doubts[source]
	n[why]++
	m.doubts[source] = n
}

func (m *Map) Doubts(source uint32) (byReason map[string]int64) {
	m.doubting.Lock()
	defer m.doubting.Unlock()
	byReason = make(map[string]int64)
	for why, n := range m.doubts[source] {
		if n > 0 {
			byReason[Doubt(why).String()] = int64(n)
		}
	}
	return byReason
}

func (m *Map) Doubted(why Doubt) (n uint64) {
	m.doubting.Lock()
	defer m.doubting.Unlock()
	for _, of := range m.doubts {
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
