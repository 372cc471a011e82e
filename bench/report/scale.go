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

// scalePart is the part whose figures the page on scale uses.
const scalePart = "scale"

// Assumptions about a fleet and its machines.
const (
	sampleEvery      = 10.0 // seconds per car
	queryEvery       = 60.0 // seconds per car
	machineCores     = 8.0
	nodeCores        = machineCores / 2 // in use, at most
	machineGB        = 32.0
	machineGbit      = 10.0
	streamInUse      = 0.5 // of a core, for the leader of a stream
	gib              = 1 << 30
	bodyBytes        = 165 // a line of NDJSON with three signals
	cachedBytes      = 1e9 // cached states, connections and telemetry of a node
	blocksBytes      = 8e9 // blocks that a server keeps in memory
	partitionSamples = 1000
	nodePartitions   = 16 // for each derive node
	feedsOfSlice     = 4  // to three nodes and to the process that measures
)

// costs holds the measured unit costs. Times are µs of CPU. FirstDerive and FirstStore are the
// values of Derive and Store for samples whose state is not cached.
type costs struct {
	Ingest, Derive, FirstDerive float64 // per sample, without the node's own feed
	Feed                        float64 // per state, in each node
	Store, FirstStore, Leader   float64 // per sample, in all servers; Leader in one of them
	Send                        float64 // per state and further feed
	Query                       float64 // per query
	Alone, AloneRead            float64 // per sample, on one machine without NATS; AloneRead with its state read
	Table                       float64 // bytes of memory per vehicle, in each node
	Server                      float64 // bytes of memory per vehicle, in each server
	AloneStored, AloneWritten   float64 // one machine: maximum bytes on disk per vehicle; bytes written per sample
	State, Sample, Wire         float64 // bytes of a state and a sample in their streams, and of a state on one feed
	Between, Written, Telemetry float64 // bytes per sample: between servers, to all disks, from the nodes
	FeedRate                    float64 // states per second that one feed delivers
	Setup, Recovery             float64 // seconds per vehicle until a feed begins, and until a killed server is back
	TelemetryLimit, StatesLimit float64 // bytes
	Cached, SetupLimit          float64 // number of cached states; seconds

	aloneMemory func(cars float64) float64 // MB, under load
}

// lookup finds figures and collects the names of missing ones.
type lookup struct {
	d       *Document
	lacking []string
}

func (l *lookup) find(part, subject, name string) *Figure {
	if f := l.d.figure(part, subject, name); f != nil {
		return f
	}
	l.lacking = append(l.lacking, fmt.Sprintf("%s (%s of %s)", part, name, subject))
	return &Figure{Value: math.NaN()}
}

// costsOf calculates the costs from the figures. If a figure is missing, its costs are NaN, and l
// has its name.
func costsOf(l *lookup) *costs {
	at := func(subject, name string) float64 { return l.find(scalePart, subject, name).Value }
	million := func(name string) float64 { return l.find("restart", "1 M vehicles", name).Value }
	c := &costs{
		Feed:           at("slice", "CPU of the query node a state"),
		Send:           at("slice, more feeds", "CPU of the servers a record sent"),
		Leader:         at("slice", "CPU of the leader of STATES a sample"),
		Query:          l.find("query", "carstate", "server CPU a request").Value,
		Alone:          at("one machine", "CPU of all a sample"),
		AloneRead:      million("node CPU a sample at a steady rate"),
		AloneStored:    million("store on disk a vehicle") * million("the largest size during the updates, over live data"),
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
		Cached:         at("limits", "cached states, all partitions"),
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

// between returns a function that estimates a figure of the part restart for any number of
// vehicles. It extrapolates linearly from the values at 100,000 and at a million vehicles, but
// never below the greater of these two.
func (l *lookup) between(name string) func(cars float64) float64 {
	few, many := 1e5, 1e6
	low, high := l.find("restart", Count(few)+" vehicles", name).Value,
		l.find("restart", Count(many)+" vehicles", name).Value
	return func(cars float64) float64 { return max(low, high, low+(cars-few)/(many-few)*(high-low)) }
}

// need calculates what a fleet needs. Interval is the time between two samples of a car, in
// seconds.
type need struct {
	*costs
	Cars, Interval float64
}

func (n need) Samples() float64 { return n.Cars / n.Interval }
func (n need) Queries() float64 { return n.Cars / queryEvery }

// cores returns how many cores are needed for perSecond events a second. each is the CPU time of
// one event, in µs.
func cores(each, perSecond float64) float64 { return each * perSecond / 1e6 }

func (n need) IngestCores() float64 { return cores(n.Ingest, n.Samples()) }
func (n need) DeriveCores() float64 { return cores(n.DeriveEach(), n.Samples()) }
func (n need) QueryCores() float64  { return cores(n.Query, n.Queries()) }
func (n need) FeedCores() float64   { return cores(n.Feed, n.Samples()) }
func (n need) StoreCores() float64  { return cores(n.StoreEach(), n.Samples()) }
func (n need) SendCores() float64   { return cores(n.Send, n.Samples()) * n.Nodes() }
func (n need) LeaderCores() float64 { return cores(n.Leader, n.Samples()) }

// WorkCores is the number of cores for the nodes' work, except following the feed of states.
func (n need) WorkCores() float64 { return n.IngestCores() + n.DeriveCores() + n.QueryCores() }

// AllCores is the number of cores for the work of the nodes and the servers.
func (n need) AllCores() float64 {
	return n.WorkCores() + n.Nodes()*n.FeedCores() + n.StoreCores() + n.SendCores()
}

// AllCached reports whether the cache has space for all states. If not, derive reads states from
// the store.
func (n need) AllCached() bool { return n.Cars <= n.Cached }

func (n need) DeriveEach() float64 {
	if n.AllCached() {
		return n.Derive
	}
	return n.FirstDerive
}

func (n need) StoreEach() float64 {
	if n.AllCached() {
		return n.Store
	}
	return n.FirstStore
}

// Nodes is the number of nodes that share the work, at least two. It is infinite if following the
// feed of states alone needs all cores that a node may use (nodeCores).
func (n need) Nodes() float64 {
	room := nodeCores - n.FeedCores()
	if room <= 0 {
		return math.Inf(1)
	}
	return max(2, math.Ceil(n.WorkCores()/room))
}

// NodeMemory is the memory of a node with the role query. ServerMemory and ServerDisk are the
// memory and disk space of each NATS server. AloneCores, AloneMemory and AloneDisk are the cores,
// memory and disk space of one machine with its own store. Memory and disk space are in bytes.
func (n need) NodeMemory() float64   { return n.Cars*n.Table + cachedBytes }
func (n need) ServerMemory() float64 { return n.Cars*n.Server + min(blocksBytes, n.ServerDisk()) }
func (n need) ServerDisk() float64   { return 3*n.Cars*n.State + min(n.Hour(), n.TelemetryLimit) }
func (n need) AloneCores() float64   { return cores(n.AloneEach(), n.Samples()) + n.QueryCores() }
func (n need) AloneMemory() float64  { return n.aloneMemory(n.Cars) * 1e6 }
func (n need) AloneDisk() float64    { return n.Cars*n.AloneStored + min(n.Hour(), n.TelemetryLimit) }

func (n need) AloneEach() float64 {
	if n.AllCached() {
		return n.Alone
	}
	return n.AloneRead
}

// Singles is the number of machines without NATS into which a fleet is divided, so that each
// machine uses at most half of its cores. Single is the part of the fleet on one of these machines.
func (n need) Singles() float64 {
	k := 1.0
	for (need{n.costs, n.Cars / k, n.Interval}).AloneCores() > nodeCores {
		k++
	}
	return k
}
func (n need) Single() need { return need{n.costs, n.Cars / n.Singles(), n.Interval} }

// Hour is the number of bytes of an hour of telemetry.
func (n need) Hour() float64 { return n.Samples() * 3600 * n.Sample }

// NodeNetwork is the number of bytes per second that a node with all roles receives: its feed and
// its part of the telemetry. ServerIn and ServerOut are the bytes per second that a NATS server
// receives and sends, on average over three servers; the leader of the stream STATES sends more
// than the average.
func (n need) NodeNetwork() float64 { return n.Samples() * (n.Wire + bodyBytes/n.Nodes()) }
func (n need) ServerIn() float64    { return n.Samples() * (n.Telemetry + n.Between) / 3 }
func (n need) ServerOut() float64   { return n.Samples() * (n.Between + n.Nodes()*n.Wire) / 3 }

// Partitions is the recommended number of partitions of a cluster. It is a power of two, and large
// enough that a partition has at most partitionSamples samples a second and that each derive node
// has nodePartitions partitions.
func (n need) Partitions() float64 {
	return math.Exp2(math.Ceil(math.Log2(max(n.Samples()/partitionSamples, nodePartitions*n.Nodes()))))
}

// Chosen is the same fleet at the shortest reporting interval, from ten seconds to half an hour, at
// which one set of streams can serve the fleet and keep a reserve, which is half of most limits. If
// nil, there is no such interval.
func (n need) Chosen() *need {
	for _, n.Interval = range []float64{10, 20, 30, 60, 120, 180, 300, 600, 900, 1800} {
		if n.LeaderCores() <= streamInUse && n.FeedCores() <= nodeCores/2 && n.Samples() <= n.FeedRate/2 &&
			n.Cars*n.State <= 0.8*n.StatesLimit && n.Cars*n.Setup <= n.SetupLimit/2 {
			return &n
		}
	}
	return nil
}

// Clusters is the number of clusters into which a fleet is divided, so that the leader of the
// stream STATES in each of them uses at most streamInUse cores. Cluster is the part of the fleet in
// one cluster.
func (n need) Clusters() float64 { return math.Ceil(n.LeaderCores() / streamInUse) }
func (n need) Cluster() need     { return need{n.costs, n.Cars / n.Clusters(), n.Interval} }

// NodeUse is the number of cores that each node uses, and ServerUse the number that each of three
// servers uses.
func (n need) NodeUse() float64   { return n.WorkCores()/n.Nodes() + n.FeedCores() }
func (n need) ServerUse() float64 { return (n.StoreCores() + n.SendCores()) / 3 }

// Bucketed is the fleet on one cluster with several sets of streams, called buckets. Each bucket
// holds an equal part of the fleet.
func (n need) Bucketed() bucketed {
	b := bucketed{need: n, Buckets: n.Clusters()}
	b.Folding = max(2, math.Ceil((n.IngestCores()+n.DeriveCores())/nodeCores))
	b.Each = math.Ceil(max(n.Samples()/partitionSamples, nodePartitions*b.Folding) / b.Buckets)
	b.Groups = math.Ceil(n.FeedCores() / (nodeCores / 2))
	b.Servers = max(3, math.Ceil(b.Storing()/nodeCores))
	return b
}

type bucketed struct {
	need
	Buckets, Each float64 // Each is the number of partitions of a bucket
	Folding       float64 // nodes with roles ingest and derive
	Groups        float64 // groups of two query nodes each
	Servers       float64
}

// Storing is the number of cores of all servers together. Each state is sent to the two query nodes
// that answer for its bucket.
func (b bucketed) Storing() float64 { return b.StoreCores() + 2*cores(b.Send, b.Samples()) }

// DiskOfServer is the disk space of each server in bytes, with three copies of all data.
func (b bucketed) DiskOfServer() float64 {
	return 3 * (3*b.Cars*b.State + min(b.Hour(), b.Buckets*b.TelemetryLimit)) / b.Servers
}

// MemoryOfServer is the memory of each server in bytes: for its part of the index of all states,
// and for the blocks of stored data that it keeps in memory.
func (b bucketed) MemoryOfServer() float64 {
	return 3*b.Cars*b.Server/b.Servers + min(blocksBytes, b.DiskOfServer())
}

// scalePage renders the page on fleets of all sizes. The result is "" until the part scale was
// measured. If figures of other parts are missing, the page lists these instead.
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
		c, d.run(scalePart), fleets(1e4, 1e5, 1e6, 1e7, 1e8), fleets(1e6, 1e7, 1e8), fleets(1e5, 1e6, 1e7, 1e8),
		fleets(1e4, 1e5), fleets(1e6, 1e7),
		need{c, 1e8, sampleEvery}, need{c, streamInUse * 1e6 / c.Leader * sampleEvery, sampleEvery},
		[]float64{4, 16, 64, 256, 1024}, l.find(scalePart, "limits", "TOKENS, SOURCES and AUDIT keep, each").Value * gib,
	}
	constants := map[string]float64{
		"every": sampleEvery, "asked": queryEvery, "machine cores": machineCores, "half of them": nodeCores, "GB": machineGB,
		"Gbit":   machineGbit,
		"leader": streamInUse, "body": bodyBytes, "partition samples": partitionSamples, "node partitions": nodePartitions,
	}
	funcs := template.FuncMap{
		"assumed": func(name string) (float64, error) {
			v, ok := constants[name]
			if !ok {
				return 0, fmt.Errorf("there is no assumption %q", name)
			}
			return v, nil
		},
		"figure": func(subject, name string) *Figure { return l.find(scalePart, subject, name) },
		"value":  func(subject, name string) float64 { return l.find(scalePart, subject, name).Value },
		"other":  func(part, subject, name string) float64 { return l.find(part, subject, name).Value },
		"measured": func() []Figure {
			return slices.DeleteFunc(slices.Clone(d.Figures), func(f Figure) bool {
				return f.Part != scalePart || f.Subject == "limits"
			})
		},
	}
	page, err := d.render("scale.md.tmpl", data, funcs)
	if err == nil && len(l.lacking) > 0 {
		slices.Sort(l.lacking)
		page = "# How far it goes\n\nNot calculated yet. These figures are missing; `make bench` measures them:\n\n- " +
			strings.Join(slices.Compact(l.lacking), "\n- ") + "\n"
	}
	return page, err
}

// sortedByCars sorts the rows of a table by the number of cars, with which each row begins.
func sortedByCars(rows string) string {
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	cars := func(line string) float64 {
		first, _, _ := strings.Cut(line, " ")
		v, _ := strconv.ParseFloat(first, 64) // the template writes numbers only
		return v
	}
	slices.SortStableFunc(lines, func(a, b string) int { return int(math.Copysign(1, cars(a)-cars(b))) })
	var b bytes.Buffer
	for _, line := range lines {
		_, rest, _ := strings.Cut(line, " ")
		fmt.Fprintf(&b, "| %s cars %s\n", Count(cars(line)), rest)
	}
	return b.String()
}
