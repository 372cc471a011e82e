package admin

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	wrong   prometheus.Counter
}

func newMetrics(r prometheus.Registerer, version string) *metrics {
	auto := promauto.With(r)
	auto.NewGauge(prometheus.GaugeOpts{
		Name:        "carstate_build_info",
		Help:        "Always 1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}).Set(1)
	return &metrics{
		calls: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "carstate_admin_calls_total",
			Help: "Calls of the admin API by call and HTTP status.",
		}, []string{"call", "code"}),
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "carstate_admin_call_duration_seconds",
			Help:    "Time from the head of a call of the admin API to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9), // 0.5 ms to 33 s
		}, []string{"call"}),
		wrong: auto.NewCounter(prometheus.CounterOpts{
			Name: "carstate_admin_wrong_keys_total",
			Help: "Calls of the admin API with a wrong key, or with none.",
		}),
	}
}
