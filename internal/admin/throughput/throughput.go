// Package throughput reads the metrics of this node, and computes the rates of samples, queries and
// refusals between two readings. It must never change a metric.
package throughput

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/ingest"
	"carstate/internal/query"
	"carstate/internal/store"
)

// Figures are the values of this node's metrics at one time.
type Figures struct {
	At       time.Time
	accepted float64            // samples
	queries  float64            // car driving state and throttle system queries
	samples  map[string]float64 // refused samples, by reason
	refused  map[string]float64 // refused queries, by outcome
	keys     map[string]float64 // refused keys of sources, by reason
	conns    map[string]float64 // refused MQTT connections, by reason
	buckets  []bucket           // histogram of query durations, shortest first
	observed float64            // number of queries in the histogram

	FeedAge float64 // seconds; negative: unknown
	Backlog float64 // seconds; negative: unknown
	Streams map[string]Fill
}

// bucket is one bucket of the cumulative histogram of query durations. The field count is the
// number of queries that took at most as long as the field seconds.
type bucket struct{ seconds, count float64 }

// Fill is the size of a stream of the store, and its limit. If the limit is unknown, it is 0.
type Fill struct{ Bytes, Limit float64 }

// answeredOutcomes are the outcomes of queries that were not refused.
var answeredOutcomes = []string{"answered", "unknown", "stale", "not_driving", "documentation", "sandbox"}

// None are the figures before the metrics are first read. A FeedAge or Backlog of -1 means unknown.
var None = Figures{FeedAge: -1, Backlog: -1}

// Read reads this node's metrics from g and returns them as figures of the time now. Which metrics
// exist depends on the node's roles and engine. If a metric is missing, its figure is zero; but
// FeedAge and Backlog are then -1, which means unknown.
func Read(g prometheus.Gatherer, now time.Time) Figures {
	f := Figures{At: now, samples: map[string]float64{}, refused: map[string]float64{}, keys: map[string]float64{},
		conns: map[string]float64{}, Streams: map[string]Fill{}, FeedAge: -1, Backlog: -1}
	families, _ := g.Gather() // with an error, Gather still returns the metrics that could be collected
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			// a metric is a counter or a gauge, so one of the two values is zero
			f.take(family.GetName(), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
			if h := m.GetHistogram(); h != nil && family.GetName() == query.MetricDuration {
				f.observed += float64(h.GetSampleCount())
				for i, b := range h.GetBucket() {
					if i == len(f.buckets) {
						f.buckets = append(f.buckets, bucket{seconds: b.GetUpperBound()})
					}
					f.buckets[i].count += float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return f
}

func (f *Figures) take(name string, labels map[string]string, value float64) {
	s := f.Streams[labels["stream"]]
	switch name {
	case ingest.MetricAccepted:
		f.accepted += value
	case ingest.MetricRefused:
		f.samples[labels["reason"]] += value
	case ingest.MetricKeysRefused:
		f.keys[labels["reason"]] += value
	case ingest.MetricConnectionsRefused:
		// A refused key is counted above. A connection without a login may be a health check.
		if why := labels["reason"]; why != "credentials" && why != "no_connect" {
			f.conns[why] += value
		}
	case query.MetricQueries:
		if labels["operation"] != "none" {
			f.queries += value
		}
		if o := labels["outcome"]; !slices.Contains(answeredOutcomes, o) {
			f.refused[o] += value
		}
	case store.MetricFeedAge:
		f.FeedAge = max(f.FeedAge, value)
	case store.MetricBacklog:
		f.Backlog = value
	case store.MetricBytes:
		f.Streams[labels["stream"]] = Fill{value, s.Limit}
	case store.MetricLimit:
		f.Streams[labels["stream"]] = Fill{s.Bytes, value}
	}
}

// Rates are the rates of samples, queries and refusals between two readings of the metrics.
type Rates struct {
	Over             time.Duration // time between the two readings; zero: unknown
	Samples, Queries float64       // per second
	P99              float64       // seconds; 0: no queries
	Beyond           bool          // P99 is beyond the last bucket; the value is then the bucket's bound

	SamplesRefused, KeysRefused, ConnectionsRefused, QueriesRefused []Reason
}

// Reason is the number of refusals for one reason.
type Reason struct {
	Name  string
	Count float64 // since the node started
	Rate  float64 // per second, between the two readings
}

// Between returns the rates between two readings of the metrics of one process. If the second
// reading is not later than the first, Over and all rates per second are 0.
func Between(old, now *Figures) Rates {
	r := Rates{Over: max(0, now.At.Sub(old.At))}
	each := func(n float64) float64 {
		if r.Over == 0 {
			return 0
		}
		return max(0, n) / r.Over.Seconds()
	}
	r.Samples, r.Queries = each(now.accepted-old.accepted), each(now.queries-old.queries)
	r.SamplesRefused = reasons(old.samples, now.samples, each)
	r.KeysRefused = reasons(old.keys, now.keys, each)
	r.ConnectionsRefused = reasons(old.conns, now.conns, each)
	r.QueriesRefused = reasons(old.refused, now.refused, each)
	r.P99, r.Beyond = quantile(.99, old.buckets, now.buckets, now.observed-old.observed)
	return r
}

// reasons lists all reasons for which something was refused since the node started, the most
// frequent first. The parameters old and now hold the numbers of refusals by reason, at two times.
// The function each converts the increase between these times into a rate per second.
func reasons(old, now map[string]float64, each func(float64) float64) (list []Reason) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if n := now[name]; n > 0 {
			list = append(list, Reason{name, n, each(n - old[name])})
		}
	}
	slices.SortStableFunc(list, func(a, b Reason) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

// quantile estimates the quantile q, from 0 to 1, of the query durations that were added to a
// histogram between the readings old and now of its buckets. The parameter total is the number of
// these durations; if it is 0, the result is 0. As in Prometheus, durations are assumed to be
// uniform within a bucket. If the quantile is above the last bucket's bound, quantile returns this
// bound, and beyond is true.
func quantile(q float64, old, now []bucket, total float64) (seconds float64, beyond bool) {
	if len(now) == 0 || total <= 0 {
		return 0, false
	}
	in := func(i int) float64 {
		if i < len(old) { // otherwise the reading old has no such bucket, because no query was timed before it
			return now[i].count - old[i].count
		}
		return now[i].count
	}
	rank := q * total
	for i := range now {
		if in(i) < rank {
			continue
		}
		from, below := 0.0, 0.0
		if i > 0 {
			from, below = now[i-1].seconds, in(i-1)
		}
		return from + (now[i].seconds-from)*(rank-below)/(in(i)-below), false
	}
	return now[len(now)-1].seconds, true
}
