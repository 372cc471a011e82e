package road

func (m *Map) Touch() {
	for i := range m.shards {
		for k := range m.shards[i].count {
			m.shards[i].at(k).changed = true
		}
	}
}
