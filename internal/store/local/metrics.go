package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/store/codec"
	"carstate/internal/store/engine"
)

// metrics holds the Prometheus metrics that every engine has, and the size of the store. A scrape
// returns the values of the last measurement and does not ask the database, which does not respond
// after a fatal error.
type metrics struct {
	*engine.Metrics
	used prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, e *Engine) *metrics {
	m := &metrics{
		Metrics: engine.NewMetrics(r, e.backlogAge),
		used: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carstate_store_bytes",
			Help: "Bytes of the store's files.",
		}),
	}
	r.MustRegister(m.used)
	return m
}

// measure updates the sizes of each stream and of the store.
func (m *metrics) measure(e *Engine) {
	for name, letter := range letters {
		m.fills(e, name, letter, 0)
	}
	m.fills(e, codec.Telemetry, letterTelemetry, uint64(e.config.TelemetryBytes))
	m.used.Set(float64(e.db.Metrics().DiskSpaceUsage()))
}

func (m *metrics) fills(e *Engine, name string, letter byte, limit uint64) {
	from, to := span(letter)
	bytes, err := e.diskUsage(from, to)
	if err != nil {
		return // the store cannot be read
	}
	m.Fills(name, bytes, limit)
}
