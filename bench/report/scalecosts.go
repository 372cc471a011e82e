package report

import (
	"fmt"
	"math"
	"slices"
)

// costs is what one of everything costs, as measured. Times are µs of CPU.
type costs struct {
	ingest, derive, firstDerive float64                    // a sample, without the node's own feed
	feed                        float64                    // a state, in each node
	store, firstStore, leader   float64                    // a sample, in the servers; the last in one of them
	send                        float64                    // a state, to one feed more
	query                       float64                    // a query
	alone                       float64                    // a sample, on one machine with the engine embedded
	table                       float64                    // bytes of memory a vehicle, in each node
	server                      float64                    // bytes of memory a vehicle, in each server: how much a process with the engine grows
	started, read               float64                    // the same at the most: a server's after its start and after a feed, with garbage and blocks
	state, sample               float64                    // bytes in a stream
	wire                        float64                    // bytes a state, to one feed
	between, written, telemetry float64                    // bytes a sample: between servers, to all disks, from the nodes
	feedRate                    float64                    // states a second that one feed brings
	setup, recovery             float64                    // seconds a vehicle: until a feed begins, until a killed server is back
	rates, atRates              [3]float64                 // samples a second of a partition, and what a sample then costs in all
	judged, messages            float64                    // a second, everything on the measured machine
	spread                      *spread                    // nil: not measured
	aloneRate, aloneLag         float64                    // samples a second over the one partition of an embedded engine, and the p99 in ms; 0: not measured
	aloneMemory                 func(cars float64) float64 // MB, under load
	limit                       map[string]float64
	tried                       string // how many partitions were measured
}

// spread is what the slice costs over more partitions: µs of CPU a sample.
type spread struct{ partitions, rate, leader, all, fold, left, lag, inUse float64 }

// feedsOfSlice follow the states while the slice is measured: those of three
// nodes and of the process that measures.
const feedsOfSlice = 4

// lookup finds figures, and notes the parts that lack one.
type lookup struct {
	d       *Document
	lacking []string
}

func (l *lookup) figure(part, subject, name string) float64 {
	if f := l.d.find(part, subject, name); f != nil {
		return f.Value
	}
	if !slices.Contains(l.lacking, part) {
		l.lacking = append(l.lacking, part)
	}
	return math.NaN()
}

// find returns a figure; nil if it was not measured.
func (d *Document) find(part, subject, name string) *Figure {
	for i := range d.Figures {
		if f := &d.Figures[i]; f.Part == part && f.Subject == subject && f.Name == name {
			return f
		}
	}
	return nil
}

// costsOf reads the costs off the figures. lacking are the parts that have to be
// measured first.
func costsOf(d *Document) (c costs, lacking []string) {
	l := &lookup{d: d}
	at := func(subject, name string) float64 { return l.figure(Scale, subject, name) }
	c.feed = at(ScaleSlice, ScaleQueryCPU)
	states := at(ScaleSlice, ScaleStates)
	c.ingest = max(0, at(ScaleSlice, ScaleIngestCPU)-states*c.feed)
	c.derive = max(0, at(ScaleSlice, ScaleDeriveCPU)-states*c.feed)
	c.firstDerive = max(0, at(ScaleFirst, ScaleDeriveCPU)-states*c.feed)
	c.send = at(ScaleFeeds, ScaleFeedCPU)
	c.store = max(0, at(ScaleSlice, ScaleServersCPU)-feedsOfSlice*states*c.send)
	c.firstStore = max(0, at(ScaleFirst, ScaleServersCPU)-feedsOfSlice*states*c.send)
	c.leader = at(ScaleSlice, ScaleLeaderCPU)
	c.query = l.figure("query", "carstate", "server CPU a request")
	c.alone = l.figure("restart", "1 M vehicles", "node CPU a sample, every state at hand")
	c.table = l.figure("vehicle", "carstate", "memory a vehicle, 10 M vehicles")
	c.server = l.slope("resident memory when ready")*1e6 - c.table // beside the engine, the table grows
	c.started, c.read = at(ScaleSubjects, ScaleSubjectMemory), at(ScaleSubjects, ScaleReadMemory)
	c.state, c.sample = at(ScaleSubjects, ScaleStateBytes), at(ScaleSlice, ScaleSampleBytes)
	c.wire = at(ScaleSubjects, ScaleWireBytes)
	c.between, c.written, c.telemetry = at(ScaleSlice, ScaleBetween), at(ScaleSlice, ScaleDisk), at(ScaleSlice, ScaleFromClients)
	c.feedRate = at(ScaleSubjects, ScaleFeedRate)
	vehicles := at(ScaleSubjects, ScaleCars)
	c.setup = at(ScaleSubjects, ScaleFeedSetup) / vehicles
	c.recovery = l.slope("ready, after kill -9") // without an election, which takes as long for any number
	c.judged, c.messages = at(ScaleBacklog, ScaleJudged), at(ScaleMessages, ScaleMessageRate)
	for i, subject := range []string{ScaleSlice, ScaleTenth, ScaleHundredth} {
		c.rates[i], c.atRates[i] = at(subject, ScaleRate), at(subject, ScaleAllCPU)
	}
	if d.find(Scale, ScaleSpread, ScaleCount) != nil {
		of := func(name string) float64 { return at(ScaleSpread, name) }
		c.spread = &spread{
			partitions: of(ScaleCount), rate: of(ScaleRate), leader: of(ScaleLeaderCPU), all: of(ScaleAllCPU),
			fold: of(ScaleFoldSize), left: of(ScaleLeft), lag: of(ScaleLagMost), inUse: of(ScaleInUse),
		}
	}
	const rate = 30_000 // the most of those that the part measures
	if f := d.find("sample", fmt.Sprintf("published to answered, %d/s", rate), "p99"); f != nil {
		c.aloneRate, c.aloneLag = rate, f.Value
	}
	c.aloneMemory = l.between("resident memory under load")
	c.tried = d.partitionsTried()
	c.limit = make(map[string]float64)
	for _, name := range []string{LimitTelemetry, LimitStates, LimitRecords, LimitRetention, LimitConnections, LimitCached, LimitBatches, LimitFeedSetup, LimitPartitions} {
		c.limit[name] = at(ScaleLimits, name)
	}
	c.limit[ScaleSourceBytes], c.limit[ScaleAuditBytes] = at(ScaleRecords, ScaleSourceBytes), at(ScaleRecords, ScaleAuditBytes)
	return c, l.lacking
}

// slope is how much a figure of the restart grows with each vehicle, from a
// million to ten.
func (l *lookup) slope(name string) float64 {
	return (l.figure("restart", "10 M vehicles", name) - l.figure("restart", "1 M vehicles", name)) / 9e6
}

// between reads a figure of the restart by the number of vehicles: on the line
// between the two sizes around it, and below the least as much as that.
func (l *lookup) between(name string) func(cars float64) float64 {
	sizes := []float64{1e5, 1e6, 3e6, 1e7}
	var measured []float64
	for _, n := range sizes {
		measured = append(measured, l.figure("restart", count(n)+" vehicles", name))
	}
	return func(cars float64) float64 {
		for i := 1; i < len(sizes); i++ {
			if cars <= sizes[i] {
				part := max(0, (cars-sizes[i-1])/(sizes[i]-sizes[i-1]))
				return measured[i-1] + part*(measured[i]-measured[i-1])
			}
		}
		return math.NaN()
	}
}

// What is assumed of a fleet and its machines.
const (
	sampleEvery   = 10.0 // seconds, a car
	queryEvery    = 60.0 // seconds, a car
	machineCores  = 8.0
	coresInUse    = 0.5 // of a machine, at most
	machineGB     = 32.0
	machineGbit   = 10.0
	networkInUse  = 0.5
	streamInUse   = 0.5 // of a core, for the leader of a stream
	trimSeconds   = 10.0
	trimRoom      = 0.2 // of TELEMETRY, between two trims
	gib           = 1 << 30
	secondsAnHour = 3600
)

// need is what a fleet needs.
type need struct {
	c              *costs
	cars, interval float64
}

func (n need) samples() float64 { return n.cars / n.interval }
func (n need) queries() float64 { return n.cars / queryEvery }

// cores turns µs of CPU for one of so many a second into cores.
func cores(each, perSecond float64) float64 { return each * perSecond / 1e6 }

func (n need) feedCores() float64 { return cores(n.c.feed, n.samples()) }

// workCores is what the nodes do besides their feeds. Where the states are not
// all at hand, they are read.
func (n need) workCores() float64 {
	return cores(n.c.ingest+n.deriveEach(), n.samples()) + cores(n.c.query, n.queries())
}

func (n need) atHand() bool { return n.cars <= n.c.limit[LimitCached] }

func (n need) deriveEach() float64 {
	if n.atHand() {
		return n.c.derive
	}
	return n.c.firstDerive
}

func (n need) storeEach() float64 {
	if n.atHand() {
		return n.c.store
	}
	return n.c.firstStore
}

// nodes is how many nodes share the work; infinite where the feed alone is more
// than a node has.
func (n need) nodes() float64 {
	room := machineCores*coresInUse - n.feedCores()
	if room <= 0 {
		return math.Inf(1)
	}
	return max(2, math.Ceil(n.workCores()/room))
}

func (n need) storeCores() float64 { return cores(n.storeEach(), n.samples()) }
func (n need) sendCores() float64  { return cores(n.c.send, n.samples()) * n.nodes() }
func (n need) leaderCores() float64 {
	return cores(n.c.leader, n.samples())
}

// count writes a number of cars as people do: "100 k", "1 M".
func count(n float64) string {
	switch {
	case n >= 1e6:
		return number(n/1e6) + " M"
	case n >= 1e3:
		return number(n/1e3) + " k"
	}
	return fmt.Sprintf("%.0f", n)
}
