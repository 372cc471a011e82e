package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/admin/throughput"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// Monitor collects the data of the fleet page, even if no page is open.
type Monitor struct {
	fleet    *fleet.Table
	gatherer prometheus.Gatherer
	maxAge   time.Duration
	now      func() time.Time
	began    time.Time

	watching sync.Mutex // guards jams and anomalies
	// The vehicles in a jam and with an anomaly, with the time when it began, which the fleet table
	// lacks.
	jams, anomalies map[vehicle.ID]watched

	mu      sync.Mutex // guards the fields below
	latest  FleetCounts
	past    []FleetCounts        // of the last day, one a minute, oldest first
	cost    time.Duration        // of the latest count
	figures []throughput.Figures // of the last minute, oldest first
}

type FleetCounts struct {
	At time.Time
	fleet.Counts
}

func (s FleetCounts) Fresh() int { return s.Driving["normal"] + s.Driving["slow"] + s.Driving["jam"] }

// ageLimits are the upper limits of the classes of [fleet.Counts.Ages]; the last class has none.
var ageLimits = []time.Duration{
	10 * time.Second, time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

const (
	figuresStep = 5 * time.Second
	ratesOver   = time.Minute
	// Counts on a page are at most countMaxAge old or, if this is longer, countRest times the
	// duration of a count, so that counting a large fleet uses at most a twentieth of one processor.
	countMaxAge = time.Second
	countRest   = 20
	// A day of counts takes about 1 MB. They are lost with the process; Prometheus can keep such data.
	historyStep   = time.Minute
	historyPoints = 24 * 60
)

// NewMonitor takes a verdict as stale if its reading is older than maxAge.
func NewMonitor(f *fleet.Table, g prometheus.Gatherer, maxAge time.Duration, now func() time.Time) *Monitor {
	return &Monitor{fleet: f, gatherer: g, maxAge: maxAge, now: now, began: now(),
		jams: make(map[vehicle.ID]watched), anomalies: make(map[vehicle.ID]watched)}
}

func (m *Monitor) Run(ctx context.Context) {
	noted := time.Time{}
	for range periodic.NowAndEvery(ctx, figuresStep) {
		m.readMetrics()
		if now := m.now(); now.Sub(noted) >= historyStep {
			noted = now
			m.note(m.Counts())
			m.dropStale()
		}
	}
}

func (m *Monitor) note(s FleetCounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past = append(m.past, s)
	m.past = m.past[max(0, len(m.past)-historyPoints):]
}

func (m *Monitor) since(t time.Time) []FleetCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.past), func(s FleetCounts) bool { return s.At.Before(t) })
}

func (m *Monitor) readMetrics() {
	f := throughput.Read(m.gatherer, m.now())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.figures = append(m.figures, f)
	for len(m.figures) > 2 && f.At.Sub(m.figures[1].At) >= ratesOver {
		m.figures = m.figures[1:]
	}
}

func (m *Monitor) flow() (now throughput.Figures, r throughput.Rates) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.figures) == 0 {
		return now, r
	}
	now = m.figures[len(m.figures)-1]
	return now, throughput.Between(&m.figures[0], &now)
}

func (m *Monitor) Counts() FleetCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now().Sub(m.latest.At) < max(countMaxAge, countRest*m.cost) {
		return m.latest
	}
	begin := time.Now()
	now := m.now()
	m.latest = FleetCounts{now, m.fleet.Count(signal.At(now), m.maxAge, ageLimits)}
	m.cost = time.Since(begin)
	return m.latest
}
