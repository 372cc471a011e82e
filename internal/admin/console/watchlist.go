package console

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"carstate/internal/vehicle"
)

// maxWatched is how many vehicles a list holds. Of more, those are listed that
// came first; how many there are, the fleet table counts.
const maxWatched = 10_000

// watchlist knows which vehicles are in a jam and which have an anomaly, because
// the fleet table keeps no vids. It is fed with every state.
type watchlist struct {
	mu        sync.Mutex // guards what follows
	jams      map[vehicle.ID]watched
	anomalies map[vehicle.ID]watched
}

// watched is since when a verdict stands, and the time of the reading that it
// stands on.
type watched struct{ since, read vehicle.UnixMilli }

// Watched is one vehicle of a list.
type Watched struct {
	ID    vehicle.ID
	Since time.Time // the Unix epoch: not known before the state is read
	Read  time.Time // of the reading that the verdict stands on
}

func newWatchlist() *watchlist {
	return &watchlist{jams: make(map[vehicle.ID]watched), anomalies: make(map[vehicle.ID]watched)}
}

// put takes a vehicle's newest state, the zero one once it is forgotten.
func (w *watchlist) put(id vehicle.ID, s *vehicle.State) {
	driving, throttle := s.Driving(), s.Throttle()
	jam := driving.State == vehicle.TrafficJam
	anomaly := throttle.Time != 0 && throttle.System == vehicle.ThrottleAnomaly
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(w.jams, id, jam, watched{s.Traffic.Changed, driving.Time})
	since := s.ThrottleMemory.Alarm.Since
	if s.FaultCode != (vehicle.TroubleCode{}) || since == 0 {
		since = throttle.Time // since when a code is there, no state says
		if known, ok := w.anomalies[id]; ok && known.since != 0 {
			since = known.since
		}
	}
	w.note(w.anomalies, id, anomaly, watched{since, throttle.Time})
}

// putVerdicts is put where the state is not at hand: since when a verdict stands is
// then not known before a page asks.
func (w *watchlist) putVerdicts(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(w.jams, id, d.State == vehicle.TrafficJam, watched{0, d.Time})
	w.note(w.anomalies, id, t.Time != 0 && t.System == vehicle.ThrottleAnomaly, watched{0, t.Time})
}

func (w *watchlist) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.jams)
	clear(w.anomalies)
}

// note keeps or drops a vehicle; mu is held.
func (w *watchlist) note(list map[vehicle.ID]watched, id vehicle.ID, listed bool, x watched) {
	if !listed {
		if len(list) > 0 {
			delete(list, id)
		}
		return
	}
	if _, known := list[id]; known || len(list) < maxWatched {
		list[id] = x
	}
}

// listed returns the vehicles of a list whose verdict answers at now, the latest
// first.
func (w *watchlist) listed(list map[vehicle.ID]watched, now time.Time, maxAge time.Duration) []Watched {
	oldest := vehicle.UnixMilli(0)
	if maxAge > 0 {
		oldest = vehicle.At(now.Add(-maxAge))
	}
	w.mu.Lock()
	all := make([]Watched, 0, len(list))
	for id, x := range list {
		if x.read >= oldest {
			all = append(all, Watched{id, x.since.Time(), x.read.Time()})
		}
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b Watched) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// dropStale makes room: vehicles that have gone silent in a jam are in none that
// anybody could ask about.
func (w *watchlist) dropStale(now time.Time, maxAge time.Duration) {
	if maxAge <= 0 {
		return
	}
	oldest := vehicle.At(now.Add(-maxAge))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range []map[vehicle.ID]watched{w.jams, w.anomalies} {
		if len(list) < maxWatched/2 {
			continue
		}
		for id, x := range list {
			if x.read < oldest {
				delete(list, id)
			}
		}
	}
}
