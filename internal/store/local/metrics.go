package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// metrics are those of every engine, and the database's own.
type metrics struct{ *store.Metrics }

func newMetrics(r prometheus.Registerer, e *Engine) *metrics {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_store_bytes",
		Help: "Bytes of the store's files.",
	}, func() float64 { return float64(e.db.Metrics().DiskSpaceUsage()) }))
	return &metrics{store.NewMetrics(r, e.backlogAge)}
}

// measure notes how full each stream is, and says once when telemetry fills up.
func (m *metrics) measure(e *Engine) {
	for name, letter := range letters {
		m.fills(e, name, letter, 0)
	}
	m.fills(e, codec.Telemetry, letterTelemetry, uint64(e.config.TelemetryBytes))
}

func (m *metrics) fills(e *Engine, name string, letter byte, limit uint64) {
	from, to := span(letter)
	bytes, err := e.db.EstimateDiskUsage(from, to)
	if err != nil {
		return // of a store that cannot be read
	}
	m.Fills(name, bytes, limit)
}
