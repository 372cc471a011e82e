// Package throughput computes the rates of samples, queries and refusals from two readings of this
// node's metrics.
package throughput

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/store"
)

type Figures struct {
	At       time.Time
	accepted float64 // samples
	queries  float64
	refused  map[Refusal]float64
	buckets  []bucket // of query durations, shortest first
	observed float64  // queries in the histogram

	FeedAge  float64         // seconds; 0: unknown
	Backlogs []Backlog       // the largest first
	Streams  map[string]Fill // those of known size and limit
}

type Backlog struct {
	Partition string
	Seconds   float64
}

// Kind is "sample", "key" (of a source), "connection" (by MQTT) or "query". The Reason of a query
// is its outcome.
type Refusal struct{ Kind, Reason string }

type bucket struct{ seconds, count float64 }

// Fill is the size of a stream and its limit in bytes.
type Fill struct{ Bytes, Limit float64 }

func (f Fill) Percent() float64 { return 100 * f.Bytes / f.Limit }

var answeredOutcomes = []string{"answered", "unknown", "stale", "not_driving", "documentation", "sandbox"}

// Read takes a missing metric as zero: which ones exist depends on roles and engine.
func Read(g prometheus.Gatherer, now time.Time) Figures {
	f := Figures{At: now, refused: map[Refusal]float64{}, Streams: map[string]Fill{}}
	families, _ := g.Gather() // despite an error, Gather returns the rest
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			// A metric is a counter or a gauge; the other value is zero.
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
	// The local engine gives the size 0 until Pebble has written a table file of the stream.
	maps.DeleteFunc(f.Streams, func(_ string, s Fill) bool { return !(s.Bytes > 0 && s.Limit > 0) })
	slices.SortStableFunc(f.Backlogs, func(a, b Backlog) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return f
}

func (f *Figures) take(name string, labels map[string]string, value float64) {
	s := f.Streams[labels["stream"]]
	switch name {
	case ingest.MetricAccepted:
		f.accepted += value
	case ingest.MetricRefused:
		f.refused[Refusal{"sample", labels["reason"]}] += value
	case ingest.MetricKeysRefused:
		f.refused[Refusal{"key", labels["reason"]}] += value
	case ingest.MetricConnectionsRefused:
		// A refused key is counted above. A connection without a login may be a health check.
		if why := labels["reason"]; why != "credentials" && why != "no_connect" {
			f.refused[Refusal{"connection", why}] += value
		}
	case query.MetricQueries:
		if labels["operation"] != "none" {
			f.queries += value
		}
		if o := labels["outcome"]; !slices.Contains(answeredOutcomes, o) {
			f.refused[Refusal{"query", o}] += value
		}
	case store.MetricFeedAge:
		f.FeedAge = max(f.FeedAge, value)
	case store.MetricBacklog:
		f.Backlogs = append(f.Backlogs, Backlog{labels["partition"], value})
	case store.MetricBytes:
		f.Streams[labels["stream"]] = Fill{value, s.Limit}
	case store.MetricLimit:
		f.Streams[labels["stream"]] = Fill{s.Bytes, value}
	}
}

type Rates struct {
	Over             time.Duration // zero: unknown
	Samples, Queries float64       // per second
	P99              float64       // seconds; 0: no queries
	Beyond           bool          // the true P99 exceeds the last bucket's bound, which P99 then is
	Refused          []Refused     // by kind, the most frequent first
}

type Refused struct {
	Refusal
	Count float64 // since the node started
	Rate  float64 // per second
}

// Between returns no rates unless now is later than old.
func Between(old, now *Figures) Rates {
	r := Rates{Over: max(0, now.At.Sub(old.At))}
	each := func(n float64) float64 {
		if r.Over == 0 {
			return 0
		}
		return max(0, n) / r.Over.Seconds()
	}
	r.Samples, r.Queries = each(now.accepted-old.accepted), each(now.queries-old.queries)
	for why, n := range now.refused {
		if n > 0 {
			r.Refused = append(r.Refused, Refused{why, n, each(n - old.refused[why])})
		}
	}
	kinds := []string{"sample", "key", "connection", "query"}
	slices.SortFunc(r.Refused, func(a, b Refused) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	r.P99, r.Beyond = quantile(.99, old.buckets, now.buckets, now.observed-old.observed)
	return r
}

// quantile assumes, as Prometheus does, that durations are uniform within a bucket. Above the last
// bound, it returns that bound, and beyond is true.
func quantile(q float64, old, now []bucket, total float64) (seconds float64, beyond bool) {
	if len(now) == 0 || total <= 0 {
		return 0, false
	}
	in := func(i int) float64 {
		if i < len(old) { // else no query was timed before old was read
			return now[i].count - old[i].count
		}
		return now[i].count
	}
	rank, from, below := q*total, 0.0, 0.0
	for i := range now {
		count := in(i)
		if count >= rank {
			return from + (now[i].seconds-from)*(rank-below)/(count-below), false
		}
		from, below = now[i].seconds, count
	}
	return from, true
}
