package console

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// maxWatched vehicles are in each list. The page takes the number of all from the counts.
const maxWatched = 10_000

// watchlist lists the vehicles in a jam and with an anomaly, with the time when it began, which the
// fleet table lacks.
type watchlist struct {
	mu        sync.Mutex // guards the fields below
	jams      map[vehicle.ID]watched
	anomalies map[vehicle.ID]watched
}

type watched struct {
	id    vehicle.ID
	since signal.UnixMilli // when the verdict began
	read  signal.UnixMilli // of the reading
}

func newWatchlist() *watchlist {
	return &watchlist{jams: make(map[vehicle.ID]watched), anomalies: make(map[vehicle.ID]watched)}
}

func (w *watchlist) Put(id vehicle.ID, a *store.Answer) {
	t := a.Throttle.Time
	jam := a.Driving.State == driving.Jam
	anomaly := t != 0 && a.Throttle.System == throttle.Anomaly
	w.mu.Lock()
	defer w.mu.Unlock()
	since := a.AnomalySince
	if since == 0 {
		since = t // time of the reading, because no state contains when a trouble code began
		if known, ok := w.anomalies[id]; ok {
			since = known.since
		}
	}
	w.note(w.jams, jam, watched{id, a.JamSince, a.Driving.Time})
	w.note(w.anomalies, anomaly, watched{id, since, t})
}

func (w *watchlist) Forget(id vehicle.ID) {
	w.Put(id, new(store.Answer))
}

// The caller holds mu.
func (w *watchlist) note(list map[vehicle.ID]watched, listed bool, x watched) {
	if !listed {
		delete(list, x.id)
		return
	}
	if _, known := list[x.id]; known || len(list) < maxWatched {
		list[x.id] = x
	}
}

// longest returns the vehicles whose verdict began first. total counts all that are not stale.
func (w *watchlist) longest(
	list map[vehicle.ID]watched, most int, now time.Time, maxAge time.Duration,
) (first []watched, total int) {
	oldest := signal.At(now.Add(-maxAge))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range list {
		if x.read < oldest {
			continue
		}
		total++
		i, _ := slices.BinarySearchFunc(first, x, func(a, b watched) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
		})
		first = slices.Insert(first, i, x)
		first = first[:min(len(first), most)]
	}
	return first, total
}

// dropStale makes room in lists that are at least half full.
func (w *watchlist) dropStale(now time.Time, maxAge time.Duration) {
	oldest := signal.At(now.Add(-maxAge))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range []map[vehicle.ID]watched{w.jams, w.anomalies} {
		if len(list) >= maxWatched/2 {
			maps.DeleteFunc(list, func(_ vehicle.ID, x watched) bool { return x.read < oldest })
		}
	}
}
