package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// scalePart is the part whose figures the page on scale works with.
const scalePart = "scale"

// Assumptions about a fleet and its machines.
const (
	sampleEvery      = 10.0 // seconds, a car
	queryEvery       = 60.0 // seconds, a car
	machineCores     = 8.0
	nodeCores        = machineCores / 2 // in use, at most
	machineGB        = 32.0
	machineGbit      = 10.0
	streamInUse      = 0.5 // of a core, for the leader of a stream
	gib              = 1 << 30
	bodyBytes        = 165 // a line of NDJSON with three signals
	cachedBytes      = 1e9 // states at hand, connections and telemetry of a node
	blocksBytes      = 8e9 // blocks that a server has in memory
	partitionSamples = 1000
	nodePartitions   = 16 // for each node that judges
	feedsOfSlice     = 4  // those of three nodes and of the process that measures
)

// costs is what one of everything costs, as measured. Times are µs of CPU.
type costs struct {
	Ingest, Derive, FirstDerive float64 // a sample, without the node's own feed
	Feed                        float64 // a state, in each node
	Store, FirstStore, Leader   float64 // a sample, in the servers; the last in one of them
	Send                        float64 // a state, to one feed more
	Query                       float64 // a query
	Alone, AloneRead            float64 // a sample, on one machine with a store of its own; where its state is read
	Table                       float64 // bytes of memory a vehicle, in each node
	Server                      float64 // bytes of memory a vehicle, in each server
	AloneStored, AloneWritten   float64 // bytes a vehicle on the disk of one machine at most; bytes a sample written to it
	State, Sample, Wire         float64 // bytes of a state and a sample in their streams, and of a state to one feed
	Between, Written, Telemetry float64 // bytes a sample: between servers, to all disks, from the nodes
	FeedRate                    float64 // states a second that one feed brings
	Setup, Recovery             float64 // seconds a vehicle: until a feed begins, until a killed server is back
	TelemetryLimit, StatesLimit float64 // bytes
	Cached, SetupLimit          float64 // states at hand; seconds

	aloneMemory func(cars float64) float64 // MB, under load
}

// lookup finds figures, and notes those that are lacking.
type lookup struct {
	d       *Document
	lacking []string
}

func (l *lookup) find(part, subject, name string) *Figure {
	for i := range l.d.Figures {
		if f := &l.d.Figures[i]; f.Part == part && f.Subject == subject && f.Name == name {
			return f
		}
	}
	l.lacking = append(l.lacking, fmt.Sprintf("%s (%s of %s)", part, name, subject))
	return &Figure{Value: math.NaN()}
}

// costsOf reads the costs off the figures.
func costsOf(l *lookup) *costs {
	at := func(subject, name string) float64 { return l.find(scalePart, subject, name).Value }
	million := func(name string) float64 { return l.find("restart", "1 M vehicles", name).Value }
	c := &costs{
		Feed:           at("slice", "CPU of the query node a state"),
		Send:           at("slice, more feeds", "CPU of the servers a record sent"),
		Leader:         at("slice", "CPU of the leader of STATES a sample"),
		Query:          l.find("query", "carstate", "server CPU a request").Value,
		Alone:          at("one machine", "CPU of all a sample"),
		AloneRead:      at("one machine", "CPU of all a sample") + million("node CPU a sample, no state at hand") - million("node CPU a sample, every state at hand"),
		AloneStored:    million("store on disk a vehicle") * million("the most it took meanwhile, over live data"),
		AloneWritten:   at("one machine", "written a sample"),
		Server:         at("subjects", "memory of a server a vehicle, started"),
		Table:          l.find("vehicle", "carstate", "memory a vehicle, 10 M vehicles").Value,
		State:          at("subjects", "bytes a state, as its stream counts"),
		Sample:         at("slice", "bytes a sample, as its stream counts"),
		Wire:           at("subjects", "bytes a record on a feed"),
		Between:        at("slice", "between servers a sample"),
		Written:        at("slice", "written by the three servers a sample"),
		Telemetry:      at("slice", "from clients to servers a sample"),
		FeedRate:       at("subjects", "records a feed brings a second"),
		Setup:          at("subjects", "until a feed's first record") / at("subjects", "cars"),
		Recovery:       at("subjects", "ready after kill -9") / at("subjects", "cars"),
		TelemetryLimit: at("limits", "TELEMETRY keeps") * gib,
		StatesLimit:    at("limits", "STATES keeps") * gib,
		Cached:         at("limits", "states at hand, all partitions"),
		SetupLimit:     at("limits", "a feed is set up within"),
		aloneMemory:    l.between("resident memory under load"),
	}
	states := at("slice", "states stored a sample")
	c.Ingest = max(0, at("slice", "CPU of ingest a sample")-states*c.Feed)
	c.Derive = max(0, at("slice", "CPU of derive a sample")-states*c.Feed)
	c.FirstDerive = max(0, at("slice, first reports", "CPU of derive a sample")-states*c.Feed)
	c.Store = max(0, at("slice", "CPU of the three servers a sample")-feedsOfSlice*states*c.Send)
	c.FirstStore = max(0, at("slice, first reports", "CPU of the three servers a sample")-feedsOfSlice*states*c.Send)
	return c
}

// between reads a figure of the restart by the number of vehicles: on the line between
// 100,000 and a million, and at least the greater of the two.
func (l *lookup) between(name string) func(cars float64) float64 {
	few, many := 1e5, 1e6
	low, high := l.find("restart", count(few)+" vehicles", name).Value, l.find("restart", count(many)+" vehicles", name).Value
	return func(cars float64) float64 { return max(low, high, low+(cars-few)/(many-few)*(high-low)) }
}

// need is what a fleet needs whose cars report at an interval.
type need struct {
	*costs
	Cars, Interval float64
}

func (n need) Samples() float64 { return n.Cars / n.Interval }
func (n need) Queries() float64 { return n.Cars / queryEvery }

// cores turns µs of CPU for one of so many a second into cores.
func cores(each, perSecond float64) float64 { return each * perSecond / 1e6 }

func (n need) IngestCores() float64 { return cores(n.Ingest, n.Samples()) }
func (n need) DeriveCores() float64 { return cores(n.DeriveEach(), n.Samples()) }
func (n need) QueryCores() float64  { return cores(n.Query, n.Queries()) }
func (n need) FeedCores() float64   { return cores(n.Feed, n.Samples()) }
func (n need) StoreCores() float64  { return cores(n.StoreEach(), n.Samples()) }
func (n need) SendCores() float64   { return cores(n.Send, n.Samples()) * n.Nodes() }
func (n need) LeaderCores() float64 { return cores(n.Leader, n.Samples()) }

// WorkCores is what the nodes do besides their feeds.
func (n need) WorkCores() float64 { return n.IngestCores() + n.DeriveCores() + n.QueryCores() }

// AllCores is what nodes and servers do.
func (n need) AllCores() float64 {
	return n.WorkCores() + n.Nodes()*n.FeedCores() + n.StoreCores() + n.SendCores()
}

// AtHand says whether all states are at hand. Where they are not, they are read.
func (n need) AtHand() bool { return n.Cars <= n.Cached }

func (n need) DeriveEach() float64 {
	if n.AtHand() {
		return n.Derive
	}
	return n.FirstDerive
}

func (n need) StoreEach() float64 {
	if n.AtHand() {
		return n.Store
	}
	return n.FirstStore
}

// Nodes is how many nodes share the work; infinite where the feed alone is more than a
// node has.
func (n need) Nodes() float64 {
	room := nodeCores - n.FeedCores()
	if room <= 0 {
		return math.Inf(1)
	}
	return max(2, math.Ceil(n.WorkCores()/room))
}

// NodeMemory is what a node needs that answers, ServerMemory and ServerDisk are what
// each server needs. AloneCores and AloneMemory are of one machine with a store of
// its own.
func (n need) NodeMemory() float64   { return n.Cars*n.Table + cachedBytes }
func (n need) ServerMemory() float64 { return n.Cars*n.Server + min(blocksBytes, n.ServerDisk()) }
func (n need) ServerDisk() float64   { return 3*n.Cars*n.State + min(n.Hour(), n.TelemetryLimit) }
func (n need) AloneCores() float64   { return cores(n.AloneEach(), n.Samples()) + n.QueryCores() }
func (n need) AloneMemory() float64  { return n.aloneMemory(n.Cars) * 1e6 }
func (n need) AloneDisk() float64    { return n.Cars*n.AloneStored + min(n.Hour(), n.TelemetryLimit) }

func (n need) AloneEach() float64 {
	if n.AtHand() {
		return n.Alone
	}
	return n.AloneRead
}

// Singles is how many machines without NATS a fleet is divided among, so that half of the
// cores of each are in use at most. Single is one of them.
func (n need) Singles() float64 {
	k := 1.0
	for (need{n.costs, n.Cars / k, n.Interval}).AloneCores() > nodeCores {
		k++
	}
	return k
}
func (n need) Single() need { return need{n.costs, n.Cars / n.Singles(), n.Interval} }

// Hour is the bytes of an hour of telemetry.
func (n need) Hour() float64 { return n.Samples() * 3600 * n.Sample }

// NodeNetwork is what a node with every role receives: its feed and its part of the
// telemetry. ServerIn and ServerOut are of each of three servers, on average: the one
// that leads STATES sends more.
func (n need) NodeNetwork() float64 { return n.Samples() * (n.Wire + bodyBytes/n.Nodes()) }
func (n need) ServerIn() float64    { return n.Samples() * (n.Telemetry + n.Between) / 3 }
func (n need) ServerOut() float64   { return n.Samples() * (n.Between + n.Nodes()*n.Wire) / 3 }

// Partitions is how many partitions are recommended on a cluster: a power of two, so
// that one has no more than so many samples a second, and enough of them for the nodes
// that judge.
func (n need) Partitions() float64 {
	return math.Exp2(math.Ceil(math.Log2(max(n.Samples()/partitionSamples, nodePartitions*n.Nodes()))))
}

// Chosen is the fleet at the shortest interval at which it fits one set of streams with
// room to spare; nil: at none.
func (n need) Chosen() *need {
	for _, n.Interval = range []float64{10, 20, 30, 60, 120, 180, 300, 600, 900, 1800} {
		if n.LeaderCores() <= streamInUse && n.FeedCores() <= nodeCores/2 && n.Samples() <= n.FeedRate/2 &&
			n.Cars*n.State <= 0.8*n.StatesLimit && n.Cars*n.Setup <= n.SetupLimit/2 {
			return &n
		}
	}
	return nil
}

// Clusters is how many clusters, or buckets, a fleet is divided into, so that the leader
// of the states of each has half a core of work. Cluster is one of them.
func (n need) Clusters() float64 { return math.Ceil(n.LeaderCores() / streamInUse) }
func (n need) Cluster() need     { return need{n.costs, n.Cars / n.Clusters(), n.Interval} }

// NodeUse and ServerUse are the cores that each node and each of three servers uses.
func (n need) NodeUse() float64   { return n.WorkCores()/n.Nodes() + n.FeedCores() }
func (n need) ServerUse() float64 { return (n.StoreCores() + n.SendCores()) / 3 }

// Bucketed is one cluster whose streams are divided into buckets.
func (n need) Bucketed() bucketed {
	b := bucketed{need: n, Buckets: n.Clusters()}
	b.Judging = max(2, math.Ceil((n.IngestCores()+n.DeriveCores())/nodeCores))
	b.Each = math.Ceil(max(n.Samples()/partitionSamples, nodePartitions*b.Judging) / b.Buckets)
	b.Groups = math.Ceil(n.FeedCores() / (nodeCores / 2))
	b.Servers = max(3, math.Ceil(b.Storing()/nodeCores))
	return b
}

type bucketed struct {
	need
	Buckets, Each float64 // partitions of a bucket
	Judging       float64 // nodes that take in and judge
	Groups        float64 // of two nodes that answer
	Servers       float64
}

// Storing is the cores of all servers: each state goes to the two nodes of its group.
func (b bucketed) Storing() float64 { return b.StoreCores() + 2*cores(b.Send, b.Samples()) }

// DiskOfServer is of each server: three copies of all.
func (b bucketed) DiskOfServer() float64 {
	return 3 * (3*b.Cars*b.State + min(b.Hour(), b.Buckets*b.TelemetryLimit)) / b.Servers
}

// MemoryOfServer is its part of the index, and blocks.
func (b bucketed) MemoryOfServer() float64 {
	return 3*b.Cars*b.Server/b.Servers + min(blocksBytes, b.DiskOfServer())
}

// scalePage is the page on fleets of all sizes; "" before the part was measured.
func (d *Document) scalePage() (string, error) {
	if d.run(scalePart) == nil {
		return "", nil
	}
	l := &lookup{d: d}
	c := costsOf(l)
	fleets := func(cars ...float64) (all []need) {
		for _, n := range cars {
			all = append(all, need{c, n, sampleEvery})
		}
		return all
	}
	data := struct {
		*costs
		Run                                     *Run
		Fleets, Planned, Bought, Alone, Divided []need
		Largest, HalfALeader                    need
		Sizes                                   []float64 // numbers of partitions
		RecordsLimit                            float64
	}{
		c, d.run(scalePart), fleets(1e4, 1e5, 1e6, 1e7, 1e8), fleets(1e6, 1e7, 1e8), fleets(1e5, 1e6, 1e7, 1e8), fleets(1e4, 1e5), fleets(1e6, 1e7),
		need{c, 1e8, sampleEvery}, need{c, streamInUse * 1e6 / c.Leader * sampleEvery, sampleEvery},
		[]float64{4, 16, 64, 256, 1024}, l.find(scalePart, "limits", "TOKENS, SOURCES and AUDIT keep, each").Value * gib,
	}
	constants := map[string]float64{
		"every": sampleEvery, "asked": queryEvery, "machine cores": machineCores, "half of them": nodeCores, "GB": machineGB, "Gbit": machineGbit,
		"leader": streamInUse, "body": bodyBytes, "partition samples": partitionSamples, "node partitions": nodePartitions,
	}
	funcs := template.FuncMap{
		"assumed": func(name string) (float64, error) {
			v, ok := constants[name]
			if !ok {
				return 0, fmt.Errorf("nothing is assumed of %q", name)
			}
			return v, nil
		},
		"figure": func(subject, name string) *Figure { return l.find(scalePart, subject, name) },
		"value":  func(subject, name string) float64 { return l.find(scalePart, subject, name).Value },
		"other":  func(part, subject, name string) float64 { return l.find(part, subject, name).Value },
		"measured": func() string {
			return list(d.figures(func(f *Figure) bool { return f.Part == scalePart && f.Subject != "limits" }))
		},
	}
	page, err := d.render("scale.md.tmpl", data, funcs)
	if err == nil && len(l.lacking) > 0 {
		slices.Sort(l.lacking)
		page = "# How far it goes\n\nNot worked out yet. These figures are lacking; `make bench` measures them:\n\n- " + strings.Join(slices.Compact(l.lacking), "\n- ") + "\n"
	}
	return page, err
}

// sortedByCars sorts the rows of a table that begin with a number of cars.
func sortedByCars(rows string) string {
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	cars := func(line string) float64 {
		first, _, _ := strings.Cut(line, " ")
		v, _ := strconv.ParseFloat(first, 64) // the template writes numbers
		return v
	}
	slices.SortStableFunc(lines, func(a, b string) int { return int(math.Copysign(1, cars(a)-cars(b))) })
	var b bytes.Buffer
	for _, line := range lines {
		_, rest, _ := strings.Cut(line, " ")
		fmt.Fprintf(&b, "| %s cars %s\n", count(cars(line)), rest)
	}
	return b.String()
}
