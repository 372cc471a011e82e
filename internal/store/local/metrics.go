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

// measure updates the sizes of each stream and of the store. If the size of a stream cannot be
// read, its last value is kept.
func (m *metrics) measure(e *Engine) {
	fills := func(name string, letter byte, limit uint64) {
		if bytes, err := e.diskUsage(span(letter)); err == nil { // the store can be read
			m.Fills(name, bytes, limit)
		}
	}
	for name, letter := range letters {
		fills(name, letter, 0)
	}
	fills(codec.Telemetry, letterTelemetry, uint64(e.config.TelemetryBytes))
	m.used.Set(float64(e.db.Metrics().DiskSpaceUsage()))
}
