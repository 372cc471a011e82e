package report

import (
	"math"
	"slices"
	"testing"
)

// model returns unit costs in round numbers, so that the results can be checked by hand.
func model() *costs {
	return &costs{
		Ingest: 5, Derive: 10, FirstDerive: 30, Feed: 10, Store: 42, FirstStore: 52, Leader: 20, Send: 2, Query: 9, Alone: 60,
		AloneRead: 120,
		Table:     40, Server: 160, State: 1000, Sample: 50, Wire: 900, Between: 2000, Written: 6000, Telemetry: 1000,
		FeedRate: 200_000, Setup: 0.5e-6, Recovery: 5e-6, TelemetryLimit: 4 * gib, StatesLimit: 16 * gib, Cached: 200_000,
		SetupLimit: 30,
	}
}

// TestFeedsAreCountedOnce checks that costsOf subtracts the CPU of the feeds, which are measured on
// their own, from the costs of a sample in ingest, derive and the store, so that a plan does not
// count them twice.
func TestFeedsAreCountedOnce(t *testing.T) {
	d := new(Document)
	for _, f := range []Figure{
		{Subject: "slice", Name: "CPU of the query node a state", Value: 10},
		{Subject: "slice", Name: "states stored a sample", Value: 1},
		{Subject: "slice", Name: "CPU of ingest a sample", Value: 15},
		{Subject: "slice", Name: "CPU of derive a sample", Value: 20},
		{Subject: "slice, first reports", Name: "CPU of derive a sample", Value: 40},
		{Subject: "slice", Name: "CPU of the three servers a sample", Value: 50},
		{Subject: "slice, first reports", Name: "CPU of the three servers a sample", Value: 60},
		{Subject: "slice, more feeds", Name: "CPU of the servers a record sent", Value: 2},
	} {
		f.Part = scalePart
		d.Figures = append(d.Figures, f)
	}
	for size, mb := range map[string]float64{"100 k": 100, "1 M": 1000} {
		d.Figures = append(d.Figures, Figure{Part: "restart", Subject: size + " vehicles", Name: "resident memory under load",
			Value: mb})
	}
	l := &lookup{d: d}
	c := costsOf(l)
	if c.Ingest != 5 || c.Derive != 10 || c.FirstDerive != 30 || c.Store != 42 || c.FirstStore != 52 {
		t.Errorf("the costs are %+v", c)
	}
	for cars, mb := range map[float64]float64{1e4: 1000, 1e6: 1000, 1.9e6: 1900} {
		if got := c.aloneMemory(cars); got != mb {
			t.Errorf("%v cars alone take %v MB, not %v", cars, got, mb)
		}
	}
	if !slices.Contains(l.lacking, "query (server CPU a request of carstate)") {
		t.Errorf("what is lacking: %v", l.lacking)
	}
}

func TestWhatFleetsNeed(t *testing.T) {
	c := model()
	small := need{c, 1e5, 10} // 10,000 samples and 1,667 queries a second
	n := need{c, 1e6, 10}     // 100,000 samples and 16,667 queries a second
	one, u := n.Cluster(), n.Bucketed()
	for what, got := range map[string][2]float64{
		"feed":           {small.FeedCores(), 0.1},
		"work":           {small.WorkCores(), 0.15 + 0.015},
		"nodes":          {small.Nodes(), 2},
		"storing":        {small.StoreCores(), 0.42},
		"sending":        {small.SendCores(), 0.04},
		"leader":         {small.LeaderCores(), 0.2},
		"an hour":        {small.Hour(), 10_000 * 3600 * 50},
		"folding, read":  {n.DeriveEach(), 30}, // more states than the cache holds
		"machines alone": {n.Singles(), 4},     // each of three would use a little more than four cores
		"a machine":      {n.Single().AloneCores(), 25_000*120/1e6 + 250_000.0/60*9/1e6},
		"storing, read":  {n.StoreEach(), 52},
		"chosen":         {n.Chosen().Interval, 60}, // 25,000 samples a second use half a core of the leader
		"clusters":       {n.Clusters(), 4},
		"cars":           {one.Cars, 250_000},
		"a node":         {one.NodeUse(), (25_000*35+250_000.0/60*9)/1e6/2 + 0.25}, // states are read from the store
		"a server":       {one.ServerUse(), 25_000 * (52 + 2*2) / 1e6 / 3},
		"into a server":  {one.ServerIn(), 25_000 * 3000 / 3.0},
		"out of it":      {one.ServerOut(), 25_000 * (2000 + 2*900) / 3.0},
		"its memory":     {one.ServerMemory(), 250_000*160 + 3*250_000*1000 + 4*gib},
		"folding nodes":  {u.Folding, 2},
		"partitions":     {u.Each * u.Buckets, 100},
		"groups":         {u.Groups, 1},
		"servers":        {u.Servers, 3},
		"disks":          {u.DiskOfServer(), 3*1e6*1000 + 16*gib},
		"partitions, 10": {need{c, 1e4, 10}.Partitions(), 32},
		"partitions, 1M": {n.Partitions(), 128},
	} {
		if math.Abs(got[0]/got[1]-1) > 1e-9 {
			t.Errorf("%s: got %v, want %v", what, got[0], got[1])
		}
	}
	// A feed that uses all cores of a node leaves none for other work.
	if n := (need{c, 1e7, 10}); !math.IsInf(n.Nodes(), 1) {
		t.Errorf("%v nodes", n.Nodes())
	}
	if (need{c, 1e8, 10}).Chosen() != nil {
		t.Error("a hundred million cars fit one set of streams")
	}
}

// TestPlan_TablesFollowTheRule checks the plans for 1, 10 and 100 million cars, which the page has
// in tables: no partition has more than partitionSamples samples a second, each derive node has at
// least nodePartitions partitions, and neither the leader of a stream nor a query node uses more
// than its share of cores.
func TestPlan_TablesFollowTheRule(t *testing.T) {
	for _, cars := range []float64{1e6, 1e7, 1e8} {
		n := need{model(), cars, sampleEvery}
		one, u := n.Cluster(), n.Bucketed()
		if p := one.Partitions(); p < nodePartitions*one.Nodes() || one.Samples()/p > partitionSamples {
			t.Errorf("%v cars: %v partitions of a cluster with %v nodes", cars, p, one.Nodes())
		}
		if p := u.Each * u.Buckets; u.Each != math.Trunc(u.Each) || p < nodePartitions*u.Folding ||
			u.Samples()/p > partitionSamples {
			t.Errorf("%v cars: %v partitions in %v buckets for %v nodes", cars, p, u.Buckets, u.Folding)
		}
		if use := u.FeedCores()/u.Groups + u.QueryCores()/(2*u.Groups); one.LeaderCores() > streamInUse || use > nodeCores {
			t.Errorf("%v cars: %v cores of a leader, %v of a node that answers", cars, one.LeaderCores(), use)
		}
	}
}
