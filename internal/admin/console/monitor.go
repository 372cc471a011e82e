package console

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/periodic"
	"carstate/internal/vehicle"
)

// Monitor keeps what the pages tell of the fleet as a whole: who is in a jam, how
// the figures were over the last hours, what the node does a second. It works
// whether somebody looks or not. Make one with [NewMonitor].
type Monitor struct {
	fleet    Fleet
	gatherer prometheus.Gatherer
	maxAge   time.Duration
	now      func() time.Time

	watchlist *watchlist
	history   history
	began     time.Time
	curves    curves // of the vehicles whose pages were open last

	mu      sync.Mutex // guards what follows
	latest  FleetCounts
	cost    time.Duration // of the latest survey
	figures []figures     // the last minute's, oldest first

	jams, anomalies []Watched // as they were at listedAt
	listedAt        time.Time
}

// How often the monitor looks.
const (
	figuresStep = 5 * time.Second
	ratesOver   = time.Minute
	// surveyStep is how old a survey may be and still be shown; a large fleet's
	// is shown for surveyRest times as long as it took, so that looking costs
	// no more than a twentieth of one core.
	surveyStep = time.Second
	surveyRest = 20
)

// NewMonitor makes a monitor of a fleet whose verdicts count for maxAge. A nil now
// is time.Now.
func NewMonitor(f Fleet, g prometheus.Gatherer, maxAge time.Duration, now func() time.Time) *Monitor {
	if now == nil {
		now = time.Now
	}
	return &Monitor{fleet: f, gatherer: g, maxAge: maxAge, now: now, watchlist: newWatchlist(), began: now(), curves: curves{scans: make(chan struct{}, maxScans), strips: make(chan struct{}, maxStrips)}}
}

// Put takes a vehicle's newest state, the zero one once it is forgotten.
func (m *Monitor) Put(id vehicle.ID, s vehicle.State) {
	m.watchlist.put(id, &s)
	if s.Time == 0 { // from now on no page may name it
		m.curves.forget(id)
		m.mu.Lock()
		m.listedAt = time.Time{}
		m.mu.Unlock()
	}
}

// PutVerdicts takes what is known of a vehicle where its state is not at hand.
func (m *Monitor) PutVerdicts(id vehicle.ID, d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) {
	m.watchlist.putVerdicts(id, d, t)
}

// Clear forgets who is in a jam and who has an anomaly.
func (m *Monitor) Clear() { m.watchlist.clear() }

// Run looks until the context ends.
func (m *Monitor) Run(ctx context.Context) {
	noted := time.Time{}
	for range periodic.NowAndEvery(ctx, figuresStep) {
		m.look()
		if now := m.now(); now.Sub(noted) >= historyStep {
			noted = now
			s := m.counts()
			m.history.add(&s)
			m.watchlist.dropStale(now, m.maxAge)
		}
	}
}

// look reads the figures.
func (m *Monitor) look() {
	f := readFigures(m.gatherer, m.now())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.figures = append(m.figures, f)
	for len(m.figures) > 2 && f.at.Sub(m.figures[1].at) >= ratesOver {
		m.figures = m.figures[1:]
	}
}

// flow is what the node does at present.
func (m *Monitor) flow() (now figures, r rates) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.figures) == 0 {
		return figures{feedAge: -1}, rates{}
	}
	now = m.figures[len(m.figures)-1]
	return now, ratesBetween(&m.figures[0], &now)
}

// counts returns the fleet's figures, counted anew if they are old.
func (m *Monitor) counts() FleetCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	if age := m.now().Sub(m.latest.At); age >= 0 && age < max(surveyStep, surveyRest*m.cost) {
		return m.latest
	}
	begin := time.Now()
	m.latest = countFleet(m.fleet, m.now(), m.maxAge)
	m.cost = time.Since(begin)
	return m.latest
}

// lists returns who is in a jam and who has an anomaly, the latest first. The
// lists are the readers' in common: nobody may change them.
func (m *Monitor) lists() (jams, anomalies []Watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if age := now.Sub(m.listedAt); age < 0 || age >= surveyStep {
		m.listedAt = now
		m.jams = m.watchlist.listed(m.watchlist.jams, now, m.maxAge)
		m.anomalies = m.watchlist.listed(m.watchlist.anomalies, now, m.maxAge)
	}
	return m.jams, m.anomalies
}
