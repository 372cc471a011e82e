package report

import (
	"fmt"
	"math"
	"strings"
)

// scalePreface opens the page on scale.
const scalePreface = `What one machine measured of a fleet far larger than itself, and what follows from it. Figures marked as measured
come from [` + "`performance/results.json`](performance/results.json)" + `, which ` + "`make bench BENCHFLAGS='-parts scale'`" + ` writes in about eight
minutes; all others are worked out from these and from the assumptions below, by the same command, and nobody has run such a fleet.
What a query, a vehicle and a sample cost one by one is in [performance.md](performance.md).

`

const scaleHow = `Three nats-server processes with ` + "`sync_interval: always`" + ` and three copies of each stream, one carstate process a role, the cars and one more copy of
the fleet table, all on one machine. The slice is a 1,024th of a hundred million cars that report every ten seconds, in one partition: its cars' states
are full-size, its messages come at the rate that they would. CPU is what ` + "`/proc`" + ` says of each process, from the first sample until the last is judged. Bytes on the network are NATS's own count,
bytes to the disk the kernel's.`

const scaleArithmetic = `Each row is one multiplication. One set of streams is assumed throughout, as carstate has it today: where a cell says more cores than a machine has, or
"–", that fleet does not fit into one set of streams: [the plan](#one-ten-a-hundred-million-cars-a-plan) has its machines. "Nodes" counts the machines that take in, judge and answer together; since it
answers, each of them follows every state.`

const scaleLimits = `Sorted by the number of cars, each with a sample every ten seconds. Fleets whose cars report every minute get six times as far where the limit is a rate.`

const scaleNot = `- **Extrapolated.** Nothing larger than a slice, a million vehicles in one stream and the partitions of the table was run. Nodes are assumed to add up.
- **One machine.** Servers, nodes and cars shared its processors and one disk. Their CPU times and bytes are theirs; times in milliseconds are not those of a real network with a round trip and a disk of its own for each server. Rates
  "on the same processors" are lower than what machines of their own give.
- **CPU of other processors.** A core is one of the machine above. Between processors a factor of two is usual.
- **Not counted**: TLS and the HTTP proxy, TCP's and IP's own bytes (about a twentieth), the load of a catch-up after an outage, compaction of blocks, backups.
- **Cars are alike.** A fleet of which a tenth sends ten times as often costs less than the same number of samples from all, because samples of one vehicle that wait together are stored as one state.
`

// assumed lists the assumptions.
func assumed() string {
	return fmt.Sprintf(`- A car sends a sample every %s s, and each makes a state: samples of one car are too far apart to be folded together. It is asked about every %s s. All cars drive at once.
- Gateways send by HTTP, a hundred cars a request. Cars with an MQTT connection of their own cost ingest more: [performance.md](performance.md) has what.
- Machines have %s cores, %s GB of memory and %s Gbit/s; half of each is planned for, so that the others can take over.
- One server leads a stream, and stores what is written to it one after the other: half a core is planned for it.
- Three NATS servers, three copies; telemetry is kept for an hour.
`, number(sampleEvery), number(queryEvery), number(machineCores), number(machineGB), number(machineGbit))
}

// inShort says the most important of it.
func (c *costs) inShort() string {
	perCar := 1 / sampleEvery
	half := streamInUse * 1e6 / c.leader / perCar
	var b strings.Builder
	fmt.Fprintf(&b, "- One set of streams carries about **%s cars** that report every %s s (half a core of the server that leads STATES at %s µs a sample), and twice that at the most. "+
		"Cars that report every minute: six times as many.\n", count(half), number(sampleEvery), number(c.leader))
	fmt.Fprintf(&b, "- STATES holds **%s vehicles**, whatever their rate.\n", count(c.limit[LimitStates]*gib/c.state))
	fmt.Fprintf(&b, "- Every node that answers or has the console follows every state: %s µs and %s bytes each. At %s cars that is %s of a node's cores and %s, before it does anything else.\n",
		number(c.feed), number(c.wire), count(half), number(cores(c.feed, half*perCar)), quantity(half*perCar*c.wire, "B/s"))
	fmt.Fprintf(&b, "- A vehicle costs each node %s bytes of memory, each server %s to %s bytes (the least is what the engine's process grows by, the most a server's after its start, with garbage), and each disk %s.\n",
		number(c.table), number(c.server), number(c.started), quantity(c.state, "B"))
	fmt.Fprintf(&b, "- Beyond that, today: several clusters, each with its part of the fleet: %s for a million cars, %s for ten, %s for a hundred. One cluster for a hundred million cars is a plan, and what is lacking for it is at the end.\n",
		number(need{c, 1e6, sampleEvery}.clusters()), number(need{c, 1e7, sampleEvery}.clusters()), number(need{c, 1e8, sampleEvery}.clusters()))
	return b.String()
}

// setup is one that works today.
type setup struct {
	cars, interval float64
	alone          bool
}

// intervals are what cars are set to, in seconds.
var intervals = []float64{10, 20, 30, 60, 120, 180, 300, 600, 900, 1800}

// chosen is the shortest interval at which a fleet fits one set of streams with
// room to spare.
func (c *costs) chosen(cars float64) (interval float64, ok bool) {
	for _, s := range intervals {
		n := need{c, cars, s}
		if n.leaderCores() <= streamInUse && n.feedCores() <= machineCores*coresInUse/2 &&
			n.samples() <= c.feedRate/2 && cars*c.state <= 0.8*c.limit[LimitStates]*gib && cars*c.setup <= c.limit[LimitFeedSetup]/2 {
			return s, true
		}
	}
	return 0, false
}

// setups are what is recommended for fleets that fit today.
func (c *costs) setups() string {
	var b strings.Builder
	b.WriteString("These work today. \"Every\" is the shortest time between two samples of a car at which the fleet fits, of those that one would choose. Memory and disk are for each machine of the kind.\n\n")
	b.WriteString("| cars | every | machines | cores in use, all machines | memory of a node | memory of a server | disk of a server | network of a node | partitions |\n|---:|---:|---|---:|---:|---:|---:|---:|---:|\n")
	for _, s := range []setup{{1e4, 10, true}, {1e5, 10, true}, {1e6, 0, false}, {1e7, 0, false}} {
		if s.alone {
			n := need{c, s.cars, s.interval}
			fmt.Fprintf(&b, "| %s | %s s | one, the engine embedded | %s | %s | | %s | %s | 1 |\n", count(s.cars), number(s.interval),
				quantity(cores(c.alone, n.samples())+cores(c.query, n.queries()), ""), quantity(c.aloneMemory(s.cars)*1e6, "B"),
				quantity(n.serverDisk(), "B"), quantity(n.samples()*bodyBytes, "B/s"))
			continue
		}
		interval, ok := c.chosen(s.cars)
		if !ok {
			fmt.Fprintf(&b, "| %s | | does not fit one set of streams | | | | | | |\n", count(s.cars))
			continue
		}
		n := need{c, s.cars, interval}
		fmt.Fprintf(&b, "| %s | %s s | three servers, %s nodes with every role | %s | %s | %s | %s | %s | %s |\n", count(s.cars), number(interval), number(n.nodes()),
			number(n.workCores()+n.nodes()*n.feedCores()+n.storeCores()+n.sendCores()),
			quantity(n.nodeMemory(), "B"), quantity(n.serverMemory(), "B"),
			quantity(n.serverDisk(), "B"), quantity(n.nodeNetwork(), "B/s"), number(n.partitionsFor()))
	}
	b.WriteString("\nMemory of a node: the table, and a gigabyte for states at hand, connections and telemetry on its way. Memory of a server: the index, and eight gigabytes for blocks that are in use, or as much as is on its disk if that is less, most of which goes when the system needs it. ")
	b.WriteString("Disk: the states three times, to be safe until they are compacted (1.5 was measured, `performance.md`), and telemetry of an hour, at most its limit. For one machine alone the memory is that measured under load (`performance.md`, the restart), its cores are what samples take that come one a car, with the states at hand (the same section). Partitions: by the rule [below](#how-many-partitions). ")
	b.WriteString("A fleet that is larger, or reports more often, is divided: two or more such clusters, each with its vehicles, its sources and its tokens, and a proxy in front that knows which vehicle is where. ")
	b.WriteString("A backup restored into an empty cluster brings the same tokens and sources; after that each cluster has its own: a token that is issued later is known to one of them, and one that ends is revoked in each.\n")
	return b.String()
}

const (
	bodyBytes   = 165 // a line of NDJSON with three signals
	cachedBytes = 1e9
	blocksBytes = 8e9
)

// nodeMemory is what a node needs that answers.
func (n need) nodeMemory() float64 { return n.cars*n.c.table + cachedBytes }

// serverMemory is what a server needs.
func (n need) serverMemory() float64 {
	return n.cars*n.c.server + min(blocksBytes, n.serverDisk())
}

// serverDisk is what a server stores.
func (n need) serverDisk() float64 { return 3*n.cars*n.c.state + n.telemetryKept() }

// nodeNetwork is what a node with every role receives: its feed and its part of the
// telemetry.
func (n need) nodeNetwork() float64 {
	return n.samples() * (n.c.wire + bodyBytes/n.nodes())
}

// telemetryKept is the bytes of an hour, or of what there is room for.
func (n need) telemetryKept() float64 {
	return min(n.samples()*secondsAnHour*n.c.sample, n.c.limit[LimitTelemetry]*gib)
}

// partitionsFor is how many partitions are recommended on a cluster: a power of two,
// so that one has no more than so many samples a second, and enough of them for the
// nodes that judge.
func (n need) partitionsFor() float64 {
	least := max(n.samples()/partitionSamples, nodePartitions*n.nodes())
	return math.Exp2(math.Ceil(math.Log2(least)))
}

const (
	partitionSamples = 1000
	nodePartitions   = 16 // for each node that judges
)

// partitionsText says how partitions are chosen.
func (c *costs) partitionsText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The number is fixed when TELEMETRY is made (`--partitions`; 1 embedded, 64 on a cluster where the flag is left out, at most %s), so choose it for the fleet that you expect: on a cluster **one for about %s samples a second, and at least %s for each node that judges**; the tables here take the next power of two. Which node has which is drawn by a hash: with four a node, one of four nodes gets none in 4 of 100 cases and the busiest has 1.5 × its share; with sixteen nobody is left out, and the busiest of four has 1.3 ×.\n\n",
		number(c.limit[LimitPartitions]), number(partitionSamples), number(nodePartitions))
	if c.aloneRate > 0 {
		fmt.Fprintf(&b, "With the engine embedded there is one node and no copies to wait for, and one partition is enough for what one machine carries: of %s samples a second of 10,000 cars, 99 in 100 stood behind an answer %s ms later (`performance.md`, the sample).\n\n",
			number(c.aloneRate), number(c.aloneLag))
	}
	fmt.Fprintf(&b, "- **What they are for**: each is judged by one goroutine of one node, %s samples a second from a backlog on the measured machine, which did all else too.\n", number(c.judged))
	fmt.Fprintf(&b, "- **What too many cost**: samples that arrive together are stored by one commit and judged by one fold, and each of these has a price whatever is in it: an atomic batch of three copies is many writes and syncs. "+
		"With %s samples a second in a partition a sample costs %s µs of CPU in all, with a tenth of that %s µs, with a hundredth %s µs, in both of which what the machines do at rest weighs more. Sixty-four partitions with a few samples a second each are much dearer than four with the same in all, and the slower for it once the servers are busy. "+
		"At rest they cost too: every node reads every cursor every two seconds, each has a consumer that shows every half second that it is there, and a queue of half a megabyte in the node that judges it.\n",
		number(c.rates[0]), number(c.atRates[0]), number(c.atRates[1]), number(c.atRates[2]))
	if s := c.spread; s != nil {
		fmt.Fprintf(&b, "- **The same load over %s**: %s µs a sample in all, where it was %s with one, and %s states a fold; the leader of STATES spent %s µs a sample, where it spent %s, so that half a core of it is %s cars; a lag of %s ms (p99), and a backlog of %s s at the end, with %s %% of the processors in use.\n",
			plural(int(s.partitions), "partition"), number(s.all), number(c.atRates[0]), number(s.fold), number(s.leader), number(c.leader), count(streamInUse*1e6/s.leader*sampleEvery), number(s.lag), number(s.left), number(s.inUse))
	}
	b.WriteString("- **How many were tried**: " + c.tried + "\n")
	fmt.Fprintf(&b, "- **Nodes that judge**: NATS takes 50 atomic batches of one stream at once, and a node has up to 8 under way: %s nodes never meet that; with more, a batch is now and then refused and sent again.\n", number(math.Floor(c.limit[LimitBatches])))
	fmt.Fprintf(&b, "- **Ingest nodes**: each has one commit a partition under way, and one stream stored %s small messages a second, on one machine. "+
		"When all are busy, a sample waits for partitions × ingest nodes / that, before the commits grow; a commit is sent again after 4 s and given up after 20 s:\n\n", number(c.messages))
	nodes := []float64{1, 4, 20}
	b.WriteString("| |")
	for _, n := range nodes {
		fmt.Fprintf(&b, " %s |", plural(int(n), "ingest node"))
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(nodes)) + "\n")
	for _, p := range []float64{4, 16, 64, 256, 1024} {
		fmt.Fprintf(&b, "| %s partitions |", number(p))
		for _, n := range nodes {
			fmt.Fprintf(&b, " %s |", quantity(p*n/c.messages*1e3, "ms"))
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nSo 1,024 partitions belong to a fleet with several sets of streams, and no fleet that one set carries needs more than 64.\n")
	return b.String()
}
