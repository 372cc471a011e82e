package node

import (
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/signal"
)

const expiringWithin = 7 * day

func (n *Node) gauge(name, help string, value func() float64) {
	n.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

func (n *Node) counter(name, help string, labels prometheus.Labels, value func() uint64) {
	n.registry.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return float64(value()) }))
}

type byState struct {
	name, help string
	count      func() map[string]map[string]int

	mu      sync.Mutex // guards the fields below, and is held while count runs
	counts  map[string]map[string]int
	counted time.Time
	cost    time.Duration
}

const countRest = 20 // A count pauses for 20 times its cost, because scrapes need no key.

// Describe sends no description: described metrics of one name must have equal labels.
func (*byState) Describe(chan<- *prometheus.Desc) {}

func (g *byState) Collect(to chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if begin := time.Now(); begin.Sub(g.counted) >= countRest*g.cost {
		g.counts, g.counted = g.count(), begin
		g.cost = time.Since(begin)
	}
	for label, counts := range g.counts {
		desc := prometheus.NewDesc(g.name, g.help, []string{label}, nil)
		for state, n := range counts {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), state)
		}
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (n *Node) registerMetrics() {
	n.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.gauge("carstate_ready", "1 if this node does all the work of its roles, as /readyz reports it, else 0.",
		func() float64 { return oneIf(n.health.ready() == nil) })
	n.gauge("carstate_wait_seconds", "Mean queueing delay of what arrives at this node.",
		func() float64 { return n.probe.Mean().Seconds() })
	n.gauge("carstate_vehicles", "Vehicles in this node's table.", func() float64 { return float64(n.fleet.Len()) })
	if n.config.needsStates() {
		n.scraped.MustRegister(&byState{name: "carstate_vehicles_by_state",
			help: "Vehicles in this node's table by what a query about them gets; each is counted once by driving and once by throttle.",
			count: func() map[string]map[string]int {
				v := n.monitor.Counts()
				return map[string]map[string]int{"driving": v.Driving, "throttle": v.Throttle}
			}})
	}
	n.gauge("carstate_vehicles_limit",
		"Maximum number of vehicles that this node accepts as known (--max-vehicles); 0: no limit.",
		func() float64 { return float64(n.fleet.Limit()) })
	if n.config.has(Query) {
		n.gauge("carstate_max_age_seconds", "Age of a reading from which on this node's answers are stale (--max-age).",
			n.config.MaxAge.Seconds)
	}
	n.gauge("carstate_tokens", "Known tokens, including revoked and expired ones.",
		func() float64 { return float64(n.tables.Tokens.Len()) })
	n.gauge("carstate_tokens_expiring", "Tokens that are valid now and expire within 7 days.", func() float64 {
		now := time.Now()
		return float64(n.tables.Tokens.Expiring(now, now.Add(expiringWithin)))
	})
	n.gauge("carstate_sources", "Sources that may send telemetry.",
		func() float64 { return float64(len(n.tables.Sources.List())) })
	n.scraped.MustRegister(&byState{name: "carstate_sources_wrong_speed",
		help: "Sources whose speeds differ from their positions by a factor, by the unit that explains it.",
		count: func() map[string]map[string]int {
			return map[string]map[string]int{"unit": n.tables.Sources.WrongSpeeds()}
		}})
	if n.config.knowsRoads() {
		n.scraped.MustRegister(&byState{name: "carstate_road_stretches_by_state",
			help: "Stretches of road whose speed in light traffic is known, by how traffic moves there; unknown: too few cars.",
			count: func() map[string]map[string]int {
				by := n.roads.CountByState(signal.At(time.Now()))
				return map[string]map[string]int{"state": {"unknown": by[0], "normal": by[driving.Normal],
					"slow": by[driving.Slow], "jam": by[driving.Jam]}}
			}})
		n.gauge("carstate_road_stretches", "Stretches of road that this node knows.",
			func() float64 { return float64(n.roads.Len()) })
		n.gauge("carstate_road_stretches_limit", "Stretches of road that this node may know (--max-stretches).",
			func() float64 { return float64(n.config.MaxStretches) })
		n.counter("carstate_road_stretches_refused_total",
			"How often evidence of an unknown stretch of road was refused because the limit was reached.",
			nil, n.roads.Refused.Load)
		for why := range road.NumDoubts {
			n.counter("carstate_road_evidence_doubted_total",
				"Evidence of roads that is not believed, by reason. `carstate source show` has the numbers of a source.",
				prometheus.Labels{"reason": why.String()}, func() uint64 { return n.roads.Doubted(why) })
		}
	}
	if n.config.has(Derive) {
		for why := range road.NumDropped {
			n.counter("carstate_positions_dropped_total",
				"Positions that are ignored, by reason. The rest of their sample is used.",
				prometheus.Labels{"reason": why.String()}, n.roads.Dropped[why].Load)
		}
		for by := range driving.NumFreeFlowSources {
			n.counter("carstate_driving_judged_total",
				"Folded samples after which their car had a driving state, by the source of its free-flow speed.",
				prometheus.Labels{"free_flow": by.String()}, n.roads.Judged[by].Load)
		}
	}
	if n.cert != nil {
		n.gauge("carstate_tls_certificate_expiry_timestamp_seconds",
			"When the certificate of the listeners expires.",
			func() float64 { return float64(n.cert.expires().Unix()) })
	}
	if n.config.has(Admin) {
		n.gauge("carstate_backup_timestamp_seconds",
			"When this node last sent a whole backup; 0: never. Whether it was stored, only `carstate backup` knows, by "+
				"its exit code.", func() float64 { return float64(max(0, ops.LastBackup(n.config.Store.DataDir).Unix())) })
	}
	if n.config.Cluster.URLs == "" {
		n.gauge("carstate_data_dir_free_bytes", "Free space on the disk of the data directory; NaN if unknown.",
			func() float64 { return freeBytes(n.config.Store.DataDir) })
	}
}

func freeBytes(dir string) float64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return math.NaN()
	}
	return float64(fs.Bavail) * float64(fs.Bsize)
}
