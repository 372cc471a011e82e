package report

import (
	"fmt"
	"math"
	"strings"
)

// scalePreface opens the page on scale.
const scalePreface = `What one machine measured of a fleet far larger than itself, and what follows from it. Figures marked as measured
come from [` + "`performance/results.json`](performance/results.json)" + `, which ` + "`make bench BENCHFLAGS='-parts scale'`" + ` writes in about five
minutes; all others are worked out from these and from the assumptions below, by the same command, and nobody has run such a fleet.
What a query, a vehicle and a sample cost one by one is in [performance.md](performance.md).

`

const scaleHow = `Three nats-server processes with ` + "`sync_interval: always`" + ` and three copies of each stream, one carstate process a role, the cars and one more copy of
the fleet table, all on one machine. The slice is one of 1,024 partitions of a hundred million cars that report every ten seconds: its cars' states
are full-size, its messages come at the rate that they would. CPU is what ` + "`/proc`" + ` says of each process, from the first sample until the last is judged. Bytes on the network are NATS's own count,
bytes to the disk the kernel's.`

const scaleArithmetic = `Each row is one multiplication. One set of streams is assumed throughout, as carstate has it today: where a cell says more cores than a machine has, or
"–", that fleet does not fit into one set of streams, and the next sections say what then. "Nodes" counts the machines that take in, judge and answer together; since it
answers, each of them follows every state.`

const scaleLimits = `Sorted by the number of cars, each with a sample every ten seconds. Fleets whose cars report every minute get six times as far where the limit is a rate.`

const scaleNot = `- **Extrapolated.** Nothing larger than a slice, a million vehicles in one stream and 1,024 idle partitions was run. Nodes are assumed to add up.
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
	fmt.Fprintf(&b, "- A vehicle costs each node %s bytes of memory, each server %s bytes, and each disk %s.\n", number(c.table), number(c.server), quantity(c.state, "B"))
	fmt.Fprintf(&b, "- Beyond that, today: several clusters, each with its part of the fleet. One cluster for a hundred million cars is a plan, and what is lacking for it is at the end.\n")
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
				quantity(3*s.cars*c.state+n.telemetryKept(), "B"), quantity(n.samples()*bodyBytes, "B/s"))
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
			quantity(s.cars*c.table+cachedBytes, "B"), quantity(s.cars*c.server+blocksBytes, "B"),
			quantity(3*s.cars*c.state+n.telemetryKept(), "B"), quantity(n.samples()*(c.wire+bodyBytes/n.nodes()), "B/s"), number(n.partitionsFor()))
	}
	b.WriteString("\nMemory of a node: the table, and a gigabyte for states at hand, connections and telemetry on its way. Memory of a server: the index, and eight gigabytes for blocks that are in use, most of which goes when the system needs it. ")
	b.WriteString("Disk: the states three times, to be safe until they are compacted (1.5 was measured, `performance.md`), and telemetry of an hour, at most its limit. For one machine alone the memory is that measured under load (`performance.md`, the restart), its cores are what samples take that come one a car, with the states at hand (the same section). ")
	b.WriteString("A fleet that is larger, or reports more often, is divided: two or more such clusters, each with its vehicles, its sources and its tokens, and a proxy in front that knows which vehicle is where. ")
	b.WriteString("A backup restored into an empty cluster brings the same tokens and sources; after that each cluster has its own: a token that is issued later is known to one of them, and one that ends is revoked in each.\n")
	return b.String()
}

const (
	bodyBytes   = 165 // a line of NDJSON with three signals
	cachedBytes = 1e9
	blocksBytes = 8e9
)

// telemetryKept is the bytes of an hour, or of what there is room for.
func (n need) telemetryKept() float64 {
	return min(n.samples()*secondsAnHour*n.c.sample, n.c.limit[LimitTelemetry]*gib)
}

// partitionsFor is how many partitions are recommended: a power of two, so that
// one has about so many samples a second.
func (n need) partitionsFor() float64 {
	return max(4, math.Exp2(math.Ceil(math.Log2(n.samples()/partitionSamples))))
}

const partitionSamples = 1000

// partitionsText says how partitions are chosen.
func (c *costs) partitionsText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The number is fixed when TELEMETRY is made (`--partitions`; 1 embedded, 64 on a cluster where the flag is left out, at most %s), so choose it for the fleet that you expect: **one for about %s samples a second**, and at least sixteen for each node that judges. Which node has which is drawn by a hash: with four a node, one of four nodes gets none in 4 of 100 cases and the busiest has 1.5 × its share; with sixteen nobody is left out, and the busiest of four has 1.3 ×.\n\n",
		number(c.limit[LimitPartitions]), number(partitionSamples))
	fmt.Fprintf(&b, "- **What they are for**: each is judged by one goroutine of one node, %s samples a second from a backlog on the measured machine, which did all else too.\n", number(c.judged))
	fmt.Fprintf(&b, "- **What too many cost**: samples that arrive together are stored by one commit and judged by one fold, and each of these has a price whatever is in it: an atomic batch of three copies is many writes and syncs. "+
		"With %s samples a second in a partition a sample costs %s µs of CPU in all, with a tenth of that %s µs, with a hundredth %s µs. Sixty-four partitions with a few samples a second each are much dearer than four with the same in all, and the slower for it once the servers are busy. "+
		"At rest they cost too: every node reads every cursor every two seconds, each has a consumer that shows every half second that it is there, and a queue of half a megabyte in the node that judges it.\n",
		number(c.rates[0]), number(c.atRates[0]), number(c.atRates[1]), number(c.atRates[2]))
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

// plan says what a hundred million cars would take.
func (c *costs) plan() string {
	n := need{c, 1e8, sampleEvery}
	buckets := math.Ceil(n.leaderCores() / streamInUse)
	full := math.Ceil(n.cars * c.state / (0.8 * c.limit[LimitStates] * gib))
	shards := math.Ceil(n.feedCores() / (machineCores * coresInUse / 2))
	work := n.workCores()
	var b strings.Builder
	fmt.Fprintf(&b, "%s samples a second do not fit one set of streams, by a factor of %s. The parts that are divided are there: partitions by a hash of the vehicle, states and cursor of a partition in one stream, fences a partition. "+
		"Nodes that only take in or judge (`--roles ingest,derive`) follow no states and have probes and metrics of their own: they can be as many as the work needs (%s cores), and the feeds are only as many as the nodes that answer. "+
		"What is to be built, in this order, each step useful by itself:\n\n", quantity(n.samples(), "n"), number(buckets), number(cores(c.ingest+c.firstDerive, n.samples())))
	fmt.Fprintf(&b, "1. **Buckets.** TELEMETRY and STATES become as many pairs of streams as are needed, a partition's bucket being its number modulo theirs. Nothing in the fold changes, since a partition's states and cursor stay together. "+
		"For the rate %s buckets (half a core for each leader), for the room %s; the servers that lead them are then about %s machines, %s cores in all for storing.\n",
		number(buckets), number(full), number(math.Ceil(n.storeCores()/(machineCores*coresInUse))), number(n.storeCores()))
	fmt.Fprintf(&b, "2. **Nodes that answer for some buckets.** All states are %s cores and %s for each node that follows them, so %s groups of nodes that answer, with a proxy in front that hashes the vid as carstate does, and at least two nodes in each. Queries themselves take %s cores in all, the tables %s a group.\n",
		number(n.feedCores()), quantity(n.samples()*c.wire, "B/s"), number(shards), number(cores(c.query, n.queries())), quantity(n.cars*c.table/shards, "B"))
	fmt.Fprintf(&b, "3. **Small records for those who answer.** Of a state's %s bytes an answer needs 40. A second record with these alone, written when a verdict changes or is half as old as `--max-age`, would leave a small part of both figures in step 2.\n", number(c.wire))
	fmt.Fprintf(&b, "4. **States stored less often.** A state that says nothing new can wait for as long as its telemetry is kept, since folding again comes to the same. Stored once a minute, %s buckets become %s.\n", number(buckets), number(math.Ceil(buckets*sampleEvery/60)))
	b.WriteString("5. **Regions by leaf nodes.** NATS servers in each region mirror the buckets, and nodes there follow the mirror: a state crosses between regions once and not once a node. carstate writes its heartbeats into the streams that it follows, and would have to write them at the origin and see them come back by the mirror, so that the age of a copy stays honest.\n")
	fmt.Fprintf(&b, "6. **Sources without records.** A source for each car would be %s in SOURCES. Cars with certificates of their own, checked against one authority, need none.\n", quantity(n.cars*c.limit[ScaleSourceBytes], "B"))
	fmt.Fprintf(&b, "\nWithout any of that, today: %s clusters as above of %s cars each, and somebody to run them. The work alone (%s cores to take in, judge and answer, %s to store) is the same.\n",
		number(buckets), count(math.Floor(n.cars/buckets)), number(work), number(n.storeCores()))
	return b.String()
}
