package console

import (
	"cmp"
	"maps"
	"slices"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// Each list has at most maxWatched vehicles. The page takes the number of all from the counts.
const maxWatched = 10_000

type watched struct {
	id    vehicle.ID
	since signal.UnixMilli // when the verdict began
	read  signal.UnixMilli // time of the reading
}

// Put removes the vehicle from the lists if a is zero.
func (m *Monitor) Put(id vehicle.ID, a *store.Answer) {
	t := a.Throttle.Time
	jam := a.Driving.State == driving.Jam
	anomaly := t != 0 && a.Throttle.System == throttle.Anomaly
	m.watching.Lock()
	defer m.watching.Unlock()
	since := a.AnomalySince
	if since == 0 {
		since = t // time of the reading, because no state contains when a trouble code began
		if known, ok := m.anomalies[id]; ok {
			since = known.since
		}
	}
	watch(m.jams, jam, watched{id, a.JamSince, a.Driving.Time})
	watch(m.anomalies, anomaly, watched{id, since, t})
}

// The caller holds Monitor.watching.
func watch(list map[vehicle.ID]watched, listed bool, x watched) {
	if !listed {
		delete(list, x.id)
		return
	}
	if _, known := list[x.id]; known || len(list) < maxWatched {
		list[x.id] = x
	}
}

// longest returns the vehicles whose verdict began first, without stale ones.
func (m *Monitor) longest(list map[vehicle.ID]watched, most int) (first []watched) {
	oldest := signal.At(m.now().Add(-m.maxAge))
	m.watching.Lock()
	defer m.watching.Unlock()
	for _, x := range list {
		if x.read < oldest {
			continue
		}
		i, _ := slices.BinarySearchFunc(first, x, func(a, b watched) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
		})
		first = slices.Insert(first, i, x)
		first = first[:min(len(first), most)]
	}
	return first
}

// dropStale makes room in lists that are at least half full.
func (m *Monitor) dropStale() {
	oldest := signal.At(m.now().Add(-m.maxAge))
	m.watching.Lock()
	defer m.watching.Unlock()
	for _, list := range []map[vehicle.ID]watched{m.jams, m.anomalies} {
		if len(list) >= maxWatched/2 {
			maps.DeleteFunc(list, func(_ vehicle.ID, x watched) bool { return x.read < oldest })
		}
	}
}
