package node

import (
	"math"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"carstate/internal/ops"
	"carstate/internal/road"
	"carstate/internal/vehicle"
)

// expiringWithin is the time before a token's expiry in which the metrics report the token as
// expiring.
const expiringWithin = 7 * 24 * time.Hour

// registerMetrics registers the metrics that belong to no single package. Each value is read at the
// time of a scrape.
func (n *Node) registerMetrics() {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	n.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("carstate_ready", "1 if this node does all the work of its roles, as /readyz reports it, else 0.",
			func() float64 {
				if n.health.ready() != nil {
					return 0
				}
				return 1
			}),
		gauge("carstate_wait_seconds", "Mean queueing delay of what arrives at this node.",
			func() float64 { return n.probe.Mean().Seconds() }),
		gauge("carstate_vehicles", "Vehicles in this node's table.", func() float64 { return float64(n.fleet.Len()) }),
		gauge("carstate_vehicles_limit", "Maximum number of vehicles that this node accepts as known "+
			"(--max-vehicles); 0: no limit.",
			func() float64 { return float64(n.maxVehicles.Load()) }),
		gauge("carstate_tokens", "Known tokens, including revoked and expired ones.",
			func() float64 { return float64(n.tables.Tokens.Len()) }),
		gauge("carstate_tokens_expiring", "Tokens that are valid now and expire within 7 days.", func() float64 {
			now := time.Now()
			return float64(n.tables.Tokens.Expiring(now, now.Add(expiringWithin)))
		}),
		gauge("carstate_sources", "Sources that may send telemetry.",
			func() float64 { return float64(len(n.tables.Sources.List())) }),
	)
	if n.config.knowsRoads() {
		n.registry.MustRegister(gauge("carstate_road_stretches", "Stretches of road that this node knows.",
			func() float64 { return float64(n.roads.Len()) }),
			gauge("carstate_road_stretches_limit", "Stretches of road that this node may know (--max-stretches).",
				func() float64 { return float64(n.config.MaxStretches) }),
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "carstate_road_stretches_refused_total",
				Help: "How often evidence of an unknown stretch of road was refused because the limit was reached."},
				func() float64 { return float64(n.roads.Refused()) }))
	}
	if n.config.has(Derive) {
		for why := range road.NumDropped {
			n.registry.MustRegister(labeledCounter("carstate_positions_dropped_total",
				"Positions that are ignored, by reason. The rest of their sample is used.",
				"reason", why.String(), func() uint64 { return n.roads.Dropped(why) }))
		}
		for by := range vehicle.NumFreeFlowSources {
			n.registry.MustRegister(labeledCounter("carstate_driving_judged_total",
				"Folded samples after which their car had a driving state, by the source of its free-flow speed.",
				"free_flow", by.String(), func() uint64 { return n.roads.Judged(by) }))
		}
	}
	if n.cert != nil {
		n.registry.MustRegister(gauge("carstate_tls_certificate_expiry_timestamp_seconds",
			"When the certificate of the listeners expires.",
			func() float64 { return float64(n.cert.expires().Unix()) }))
	}
	if n.config.has(Admin) {
		n.registry.MustRegister(gauge("carstate_backup_timestamp_seconds",
			"When this node last sent a whole backup; 0: never. Whether it was stored, only `carstate backup` knows, by "+
				"its exit code.", func() float64 {
				if at := ops.LastBackup(n.config.Store.DataDir); !at.IsZero() {
					return float64(at.Unix())
				}
				return 0
			}))
	}
	if n.config.Cluster.URLs == "" {
		n.registry.MustRegister(gauge("carstate_data_dir_free_bytes",
			"Free space on the disk of the data directory; NaN if unknown.",
			func() float64 { return freeBytes(n.config.Store.DataDir) }))
	}
}

// labeledCounter returns a counter with one constant label. Its value at each scrape is the result
// of the function n.
func labeledCounter(name, help, label, value string, n func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help,
		ConstLabels: prometheus.Labels{label: value}},
		func() float64 { return float64(n()) })
}

// freeBytes returns the number of bytes that can still be written to the disk of a directory, or
// NaN if the disk cannot be examined.
func freeBytes(dir string) float64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return math.NaN()
	}
	return float64(fs.Bavail) * float64(fs.Bsize)
}
