package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/store"
	"carstate/internal/store/codec"
)

// metrics are those of every engine, and what it takes of the disk. Nothing of the database
// is asked while they are read: after a fatal error it never answers.
type metrics struct {
	*store.Metrics
	used, size, available prometheus.Gauge
	alarmed               bool // owned by measure
}

func newMetrics(r prometheus.Registerer, e *Engine) *metrics {
	m := &metrics{
		Metrics: store.NewMetrics(r, e.backlogAge),
		used: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carstate_store_bytes",
			Help: "Bytes of the store's files.",
		}),
		size: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carstate_disk_bytes",
			Help: "Size of the file system that holds the data directory.",
		}),
		available: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carstate_disk_available_bytes",
			Help: "Bytes of the file system that holds the data directory that can still be written.",
		}),
	}
	r.MustRegister(m.used, m.size, m.available)
	return m
}

// The disk is logged as filling up when less than lowDisk percent of it is left, and once
// more after highDisk percent were.
const (
	lowDisk  = 20
	highDisk = 25
)

// measure notes how much each stream, the store and the disk hold.
func (m *metrics) measure(e *Engine) {
	for name, letter := range letters {
		m.fills(e, name, letter, 0)
	}
	m.fills(e, codec.Telemetry, letterTelemetry, uint64(e.config.TelemetryBytes))
	m.used.Set(float64(e.db.Metrics().DiskSpaceUsage()))
	disk, err := e.config.FS.GetDiskUsage(e.dir.path)
	if err != nil || disk.TotalBytes == 0 {
		return // the file system does not tell
	}
	m.size.Set(float64(disk.TotalBytes))
	m.available.Set(float64(disk.AvailBytes))
	switch percent := disk.AvailBytes * 100 / disk.TotalBytes; {
	case percent < lowDisk && !m.alarmed:
		m.alarmed = true
		e.log.Error("the disk of the data directory is filling up: nothing can be stored once it is full", "available_bytes", disk.AvailBytes, "available_percent", percent)
	case percent >= highDisk:
		m.alarmed = false
	}
}

func (m *metrics) fills(e *Engine, name string, letter byte, limit uint64) {
	from, to := span(letter)
	bytes, err := e.db.EstimateDiskUsage(from, to)
	if err != nil {
		return // of a store that cannot be read
	}
	m.Fills(name, bytes, limit)
}
