package report

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// scaleFixture is a document with all that the page on scale works with, in
// numbers that a person can follow.
func scaleFixture() *Document {
	var r Results
	add := func(part, subject, name string, v float64, unit string) {
		r.Add(Figure{Part: part, Subject: subject, Name: name, Value: v, Unit: unit})
	}
	for name, v := range map[string]float64{
		ScaleQueryCPU: 10, ScaleStates: 1, ScaleIngestCPU: 15, ScaleDeriveCPU: 20, ScaleServersCPU: 50, ScaleLeaderCPU: 20,
		ScaleSampleBytes: 50, ScaleBetween: 2000, ScaleDisk: 6000, ScaleFromClients: 1000,
	} {
		add(Scale, ScaleSlice, name, v, "µs")
	}
	for i, subject := range []string{ScaleSlice, ScaleTenth, ScaleHundredth} {
		add(Scale, subject, ScaleRate, 10_000/math.Pow10(i), "1/s")
		add(Scale, subject, ScaleAllCPU, 100*math.Pow10(i), "µs")
	}
	add(Scale, ScaleFirst, ScaleDeriveCPU, 40, "µs")
	add(Scale, ScaleFirst, ScaleServersCPU, 60, "µs")
	add(Scale, ScaleFeeds, ScaleFeedCPU, 2, "µs")
	for name, v := range map[string]float64{
		ScaleSubjectMemory: 400, ScaleReadMemory: 800, ScaleStateBytes: 1000, ScaleWireBytes: 900, ScaleFeedRate: 200_000, ScaleCars: 1e6, ScaleFeedSetup: 0.5, ScaleRecovery: 5,
	} {
		add(Scale, ScaleSubjects, name, v, "B")
	}
	add(Scale, ScaleBacklog, ScaleJudged, 10_000, "1/s")
	add(Scale, ScaleMessages, ScaleMessageRate, 5000, "1/s")
	add(Scale, ScaleRecords, ScaleSourceBytes, 300, "B")
	add(Scale, ScaleRecords, ScaleAuditBytes, 300, "B")
	add(Scale, "64"+ScalePartitions, ScaleNodeMemory, 50, "MB")
	add(Scale, "256"+ScalePartitions, ScaleNodeMemory, 80, "MB")
	for name, v := range map[string]float64{
		LimitTelemetry: 4, LimitStates: 16, LimitRecords: 1, LimitRetention: 1, LimitConnections: 20_000, LimitCached: 200_000,
		LimitBatches: 6, LimitFeedSetup: 30, LimitPartitions: 4096,
	} {
		add(Scale, ScaleLimits, name, v, "")
	}
	add("query", "carstate", "server CPU a request", 9, "µs")
	add("vehicle", "carstate", "memory a vehicle, 10 M vehicles", 40, "B")
	add("restart", "1 M vehicles", "node CPU a sample, every state at hand", 60, "µs")
	for size, mb := range map[string]float64{"100 k": 100, "1 M": 200, "3 M": 600, "10 M": 2000} {
		add("restart", size+" vehicles", "resident memory when ready", mb, "MB")
		add("restart", size+" vehicles", "resident memory under load", 2*mb, "MB")
		add("restart", size+" vehicles", "ready, after kill -9", mb/40, "s")
	}
	d := new(Document)
	for _, part := range []string{Scale, "query", "vehicle", "restart"} {
		d.Replace(Run{Part: part, Machine: "a machine", Version: "v1", At: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Took: time.Minute, Rounds: 1}, &r)
	}
	return d
}

func TestWhatFleetsNeed(t *testing.T) {
	c, lacking := costsOf(scaleFixture())
	if len(lacking) > 0 {
		t.Fatalf("lacking: %v", lacking)
	}
	// The feeds of the slice do not count twice.
	if c.ingest != 5 || c.derive != 10 || c.firstDerive != 30 || c.store != 42 || c.firstStore != 52 {
		t.Errorf("the costs are %+v", c)
	}
	small := need{&c, 1e5, 10} // 10,000 samples and 1,667 queries a second
	for what, got := range map[string][2]float64{
		"feed":    {small.feedCores(), 0.1},
		"work":    {small.workCores(), 0.15 + 0.015},
		"nodes":   {small.nodes(), 2},
		"storing": {small.storeCores(), 0.42},
		"sending": {small.sendCores(), 0.04},
		"leader":  {small.leaderCores(), 0.2},
		"kept":    {small.telemetryKept(), 10_000 * 3600 * 50},
		"memory":  {c.aloneMemory(2e6), 800},
		"index":   {c.server, 160},
		"back":    {c.recovery * 9e6, 45},
	} {
		if math.Abs(got[0]-got[1]) > 1e-9 {
			t.Errorf("%s: %v, not %v", what, got[0], got[1])
		}
	}
	// More states than are at hand are read.
	if large := (need{&c, 1e6, 10}); large.deriveEach() != 30 || large.storeEach() != 52 {
		t.Errorf("of a million cars: %v, %v", large.deriveEach(), large.storeEach())
	}
	for cars, want := range map[float64]float64{1e4: 32, 1e5: 32, 1e6: 128} {
		if got := (need{&c, cars, 10}).partitionsFor(); got != want {
			t.Errorf("%v cars: %v partitions, not %v", cars, got, want)
		}
	}
	// A feed that takes all of a node leaves no room for any.
	if n := (need{&c, 1e7, 10}); !math.IsInf(n.nodes(), 1) {
		t.Errorf("%v nodes", n.nodes())
	}
	// A million cars: half a core of the leader are 25,000 samples a second.
	if every, ok := c.chosen(1e6); !ok || every != 60 {
		t.Errorf("a million cars report every %v s, %v", every, ok)
	}
	if _, ok := c.chosen(1e8); ok {
		t.Error("a hundred million cars fit one set of streams")
	}
}

// What the page says of partitions holds for its own tables.
func TestPlan(t *testing.T) {
	c, _ := costsOf(scaleFixture())
	for _, cars := range planned {
		n := need{&c, cars, sampleEvery}
		one, u := n.cluster(), n.bucketed()
		if p := one.partitionsFor(); p < nodePartitions*one.nodes() || one.samples()/p > partitionSamples {
			t.Errorf("%v cars: %v partitions of a cluster with %v nodes", cars, p, one.nodes())
		}
		if p := u.each * u.buckets; u.each != math.Trunc(u.each) || p < nodePartitions*u.judging || u.samples()/p > partitionSamples {
			t.Errorf("%v cars: %v partitions in %v buckets for %v nodes", cars, p, u.buckets, u.judging)
		}
		answering := u.feedCores()/u.groups + cores(u.c.query, u.queries())/(2*u.groups)
		if one.leaderCores() > streamInUse || answering > nodeCores {
			t.Errorf("%v cars: %v cores of a leader, %v of a node that answers", cars, one.leaderCores(), answering)
		}
	}
	n := need{&c, 1e6, sampleEvery} // 100,000 samples and 16,667 queries a second
	one, u := n.cluster(), n.bucketed()
	for what, got := range map[string][2]float64{
		"clusters":          {n.clusters(), 4},
		"cars":              {one.cars, 250_000},
		"a node":            {one.coresOfNode(), (25_000*35+250_000.0/60*9)/1e6/2 + 0.25}, // not all at hand
		"a server":          {one.coresOfServer(), 25_000 * (52 + 2*2) / 1e6 / 3},
		"into a server":     {one.serverIn(), 25_000 * 3000 / 3.0},
		"out of a server":   {one.serverOut(), 25_000 * (2000 + 2*900) / 3.0},
		"its memory":        {one.serverMemory(), 250_000*160 + 3*250_000*1000 + 4*gib},
		"judging":           {u.judging, 2},
		"partitions":        {u.each * u.buckets, 100},
		"groups":            {u.groups, 1},
		"servers":           {u.servers, 3},
		"their disks":       {u.diskOfServer(), 3*1e6*1000 + 16*gib},
		"a smaller fleet's": {need{&c, 1e5, sampleEvery}.cluster().deriveEach(), 10},
	} {
		if math.Abs(got[0]/got[1]-1) > 1e-9 {
			t.Errorf("%s: %v, not %v", what, got[0], got[1])
		}
	}
}

// The costs of more partitions are shown where they were measured.
func TestSpread(t *testing.T) {
	d := scaleFixture()
	c, _ := costsOf(d)
	if text := c.planCosts() + c.partitionsText(); c.spread != nil || !strings.Contains(text, "was not measured") {
		t.Errorf("not measured: %s", text)
	}
	for name, v := range map[string]float64{
		ScaleCount: 32, ScaleRate: 9600, ScaleLeaderCPU: 40, ScaleAllCPU: 120, ScaleFoldSize: 30, ScaleLeft: 0.25, ScaleLagMost: 70, ScaleInUse: 90,
	} {
		d.Figures = append(d.Figures, Figure{Part: Scale, Subject: ScaleSpread, Name: name, Value: v})
	}
	c, lacking := costsOf(d)
	text := c.planCosts() + c.partitionsText()
	for _, want := range []string{"Over 32 partitions, with 300 in each, a sample cost 120 µs", "spent 40 µs a sample, where it spent 20, so that half a core of it is 125 k cars"} {
		if len(lacking) > 0 || !strings.Contains(text, want) {
			t.Errorf("the page lacks %s (%v):\n%s", want, lacking, text)
		}
	}
}

// The page says whether the slice was judged as fast as it came, as far as that
// was measured.
func TestLagText(t *testing.T) {
	for _, c := range []struct {
		ratio, grows, left *bool
		want, not          string
	}{
		{new(false), nil, nil, "does not show that a partition keeps up", "did not fall behind"},
		{new(true), nil, nil, "2 × that of the first.", "fall"},
		{new(true), new(true), new(true), "So it did not fall behind.", "**"},
		{new(false), new(true), new(true), "the lag was not steady.", "fell behind"},
		{new(false), new(false), new(true), "it **fell behind**", "did not"},
		{new(true), new(true), new(false), "it **fell behind**", "did not"},
	} {
		var r Results
		add := func(name string, met *bool) {
			r.Add(Figure{Part: Scale, Subject: ScaleSlice, Name: name, Value: 2, Aim: "≤ 1", Met: met})
		}
		add(ScaleLagHalf, nil)
		add(ScaleLagMost, nil)
		add(ScaleLagGrowth, c.ratio)
		if c.grows != nil {
			add(ScaleLagSlope, c.grows)
			add(ScaleLeft, c.left)
		}
		d := &Document{Figures: r.Figures}
		_, text, _ := strings.Cut(d.lagText(), "**Does a partition keep up with such a slice?**")
		if !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
			t.Errorf("it says: %s", text)
		}
	}
	if text := new(Document).lagText(); text != "" {
		t.Errorf("of nothing: %s", text)
	}
}

func TestPartitionsTried(t *testing.T) {
	var r Results
	for subject, unit := range map[string]string{"64": "s", "256": "s", "1024": "s, and not all"} {
		r.Add(Figure{Part: Scale, Subject: subject + ScalePartitions, Name: ScaleUntilJudged, Value: 120, Unit: unit, Remark: "seven of nine"})
	}
	d := &Document{Figures: r.Figures}
	if got := d.partitionsTried(); !strings.Contains(got, "Up to 256 were tried") || !strings.Contains(got, "With 1,024 **not all were judged** within 120 s (seven of nine).") {
		t.Error(got)
	}
	var b strings.Builder
	if d.writePartitions(&b); !strings.Contains(b.String(), "- 1024 partitions: seven of nine\n") {
		t.Error(b.String())
	}
}

func TestLimitsAreSorted(t *testing.T) {
	c, _ := costsOf(scaleFixture())
	met := c.met()
	if !slices.IsSortedFunc(met, func(a, b limit) int { return int(a.cars - b.cars) }) {
		t.Error("the limits are not sorted")
	}
	at := func(what string) float64 {
		for _, l := range met {
			if strings.Contains(l.what, what) {
				return l.cars
			}
		}
		t.Fatalf("there is no limit on %s", what)
		return 0
	}
	for what, want := range map[string]float64{"half a core": 250_000, "a whole core": 500_000, "STATES is full": 16.0 * gib / 1000, "one after the other": 2e6, "set up in time": 6e7} {
		if got := at(what); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s is met at %v cars, not %v", what, got, want)
		}
	}
}

func TestScalePage(t *testing.T) {
	d := scaleFixture()
	page := d.scalePage()
	for _, want := range []string{
		"about **250 k cars**",
		"| one server leads STATES, a whole core",
		"| 500 k cars |",
		"| slice | CPU of ingest a sample | 15 µs |  |",
		"| | 64 partitions | 256 partitions |\n|---|---:|---:|\n| memory of a node | 50 MB | 80 MB |",
		"| **cores of every node for its feed** | samples × 10 µs | 0.01 cores | 0.1 cores | 1 cores | 10 cores | 100 cores |",
		"| 1 M | 60 s | three servers,",
		"| 1,024 partitions | 205 ms | 819 ms | 4,096 ms |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s\n%s", want, page)
		}
	}
	for _, wrong := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(page, wrong) {
			t.Errorf("the page has %s:\n%s", wrong, page)
		}
	}

	// Without one of the parts nothing is worked out; without its own there is no page.
	d.Replace(Run{Part: "restart"}, new(Results))
	if page := d.scalePage(); !strings.Contains(page, "are lacking: restart.") || strings.Contains(page, "|") {
		t.Errorf("without the restart: %s", page)
	}
	docs := t.TempDir()
	if err := d.Save(docs); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(docs, scalePageFile)); err != nil {
		t.Error(err)
	}
	if page := fixture().scalePage(); page != "" {
		t.Errorf("a part that was not measured has a page: %s", page)
	}
}
