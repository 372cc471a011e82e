package report

import (
	"fmt"
	"math"
	"strings"
)

// planned are the fleets that the plan works out, with a sample every ten seconds.
var planned = []float64{1e6, 1e7, 1e8}

// clusters is how many clusters, or buckets, a fleet is divided into, so that what
// leads the states of each has half a core of work.
func (n need) clusters() float64 { return math.Ceil(n.leaderCores() / streamInUse) }

// cluster is what one of the clusters needs, as a fleet of its own.
func (n need) cluster() need { return need{n.c, n.cars / n.clusters(), n.interval} }

// coresOfNode and coresOfServer are what each node and each of three servers uses.
func (n need) coresOfNode() float64   { return n.workCores()/n.nodes() + n.feedCores() }
func (n need) coresOfServer() float64 { return (n.storeCores() + n.sendCores()) / 3 }

// serverIn and serverOut are bytes a second of each of three servers, on average: the
// one that leads STATES sends more.
func (n need) serverIn() float64 { return n.samples() * (n.c.telemetry + n.c.between) / 3 }
func (n need) serverOut() float64 {
	return n.samples() * (n.c.between + n.nodes()*n.c.wire) / 3
}

// bucketed is one cluster whose streams are divided into buckets.
type bucketed struct {
	need
	buckets, each float64 // partitions of a bucket
	judging       float64 // nodes that take in and judge
	groups        float64 // of two nodes that answer
	servers       float64
}

func (n need) bucketed() bucketed {
	b := bucketed{need: n, buckets: n.clusters()}
	b.judging = max(2, math.Ceil(cores(n.c.ingest+n.deriveEach(), n.samples())/nodeCores))
	b.each = math.Ceil(max(n.samples()/partitionSamples, nodePartitions*b.judging) / b.buckets)
	b.groups = math.Ceil(n.feedCores() / (nodeCores / 2))
	b.servers = max(3, math.Ceil(b.storing()/nodeCores))
	return b
}

const nodeCores = machineCores * coresInUse

// storing is the cores of all servers: each state goes to the two nodes of its group.
func (b bucketed) storing() float64 {
	return b.storeCores() + 2*cores(b.c.send, b.samples())
}

// diskOfServer is of each server: three copies of all.
func (b bucketed) diskOfServer() float64 {
	kept := min(b.samples()*secondsAnHour*b.c.sample, b.buckets*b.c.limit[LimitTelemetry]*gib)
	return 3 * (3*b.cars*b.c.state + kept) / b.servers
}

// row is one line of a table of fleets.
type row[T any] struct {
	what, how, unit string
	of              func(T) float64
}

// writeFleets writes a table with a column for each of the planned fleets.
func writeFleets[T any](b *strings.Builder, c *costs, as func(need) T, rows []row[T]) {
	b.WriteString("| what | how |")
	for _, f := range planned {
		fmt.Fprintf(b, " %s cars |", count(f))
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(planned)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |", r.what, r.how)
		for _, f := range planned {
			v := r.of(as(need{c, f, sampleEvery}))
			text := quantity(v, r.unit)
			if r.unit == "n" {
				text = Thousands(fmt.Sprintf("%.0f", v)) // of machines every one counts
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}

// plan says what large fleets take: several clusters today, and one cluster with what
// is to be built.
func (c *costs) plan() string {
	var b strings.Builder
	per := func(v float64, unit string) string { return number(v) + " " + unit }
	n := need{c, 1e8, sampleEvery}
	one := n.cluster() // the others' are hardly smaller
	b.WriteString("### Several clusters, which work today\n\nEach has three servers, nodes with every role and a part of the fleet, and knows nothing of the others.\n\n")
	writeFleets(&b, c, func(n need) need { return n }, []row[need]{
		{"clusters", fmt.Sprintf("cars / 10 s × %s / %s core", per(c.leader, "µs"), number(streamInUse)), "n", need.clusters},
		{"cars of a cluster", "cars / clusters", "n", func(n need) float64 { return math.Floor(n.cluster().cars) }},
		{"samples a second of a cluster", "its cars / 10 s", "n", func(n need) float64 { return math.Floor(n.cluster().samples()) }},
		{"nodes with every role, a cluster", "as in the arithmetic, at least 2", "n", func(n need) float64 { return n.cluster().nodes() }},
		{"servers of a cluster", "three copies", "n", func(need) float64 { return 3 }},
		{"**nodes in all**", "× clusters", "n", func(n need) float64 { return n.clusters() * n.cluster().nodes() }},
		{"**servers in all**", "× clusters", "n", func(n need) float64 { return n.clusters() * 3 }},
		{"cores in use of a node", fmt.Sprintf("samples × (%s / nodes + %s) + queries × %s / nodes", per(c.ingest+one.deriveEach(), "µs"), per(c.feed, "µs"), per(c.query, "µs")), "cores", func(n need) float64 { return n.cluster().coresOfNode() }},
		{"cores in use of a server", fmt.Sprintf("samples × (%s + nodes × %s) / 3, the leader of STATES more", per(one.storeEach(), "µs"), per(c.send, "µs")), "cores", func(n need) float64 { return n.cluster().coresOfServer() }},
		{"**cores in use, all machines**", "nodes and servers × theirs", "cores", func(n need) float64 {
			one := n.cluster()
			return n.clusters() * (one.nodes()*one.coresOfNode() + 3*one.coresOfServer())
		}},
		{"partitions of a cluster", fmt.Sprintf("%s × nodes, or samples / %s if that is more; the next power of two", number(nodePartitions), number(partitionSamples)), "n", func(n need) float64 { return n.cluster().partitionsFor() }},
		{"**partitions in all**", "× clusters", "n", func(n need) float64 { return n.clusters() * n.cluster().partitionsFor() }},
		{"samples a second of a partition", "samples of a cluster / its partitions", "n", func(n need) float64 { return math.Floor(n.cluster().samples() / n.cluster().partitionsFor()) }},
		{"memory of a node", "its cars × " + per(c.table, "B") + " + 1 GB", "B", func(n need) float64 { return n.cluster().nodeMemory() }},
		{"memory of a server", "its cars × " + per(c.server, "B") + " + 8 GB, or what is on its disk if that is less", "B", func(n need) float64 { return n.cluster().serverMemory() }},
		{"disk of a server", fmt.Sprintf("its cars × 3 × %s + samples × 3,600 s × %s, of which at most %s GiB are kept", per(c.state, "B"), per(c.sample, "B"), number(c.limit[LimitTelemetry])), "B", func(n need) float64 { return n.cluster().serverDisk() }},
		{"written to a server's disk", "samples × " + per(c.written/3, "B"), "B/s", func(n need) float64 { return n.cluster().samples() * c.written / 3 }},
		{"network into a node", fmt.Sprintf("samples × (%s + %s / nodes)", per(c.wire, "B"), per(bodyBytes, "B")), "B/s", func(n need) float64 { return n.cluster().nodeNetwork() }},
		{"network into a server, on average", fmt.Sprintf("samples × (%s + %s) / 3", per(c.telemetry, "B"), per(c.between, "B")), "B/s", func(n need) float64 { return n.cluster().serverIn() }},
		{"network out of a server, on average", fmt.Sprintf("samples × (%s + nodes × %s) / 3", per(c.between, "B"), per(c.wire, "B")), "B/s", func(n need) float64 { return n.cluster().serverOut() }},
	})
	b.WriteString(c.planCosts())

	u, full := n.bucketed(), math.Ceil(n.cars*c.state/(0.8*c.limit[LimitStates]*gib))
	fmt.Fprintf(&b, "### One cluster, which is to be built\n\n%s samples a second do not fit one set of streams, by a factor of %s. The parts that are divided are there: partitions by a hash of the vehicle, states and cursor of a partition in one stream, fences a partition. "+
		"Nodes that only take in or judge (`--roles ingest,derive`) follow no states and have probes and metrics of their own: they can be as many as the work needs (%s cores), and the feeds are only as many as the nodes that answer. "+
		"What is to be built, in this order, each step useful by itself:\n\n", quantity(n.samples(), "n"), number(u.buckets), number(cores(c.ingest+n.deriveEach(), n.samples())))
	fmt.Fprintf(&b, "1. **Buckets.** TELEMETRY and STATES become as many pairs of streams as are needed, a partition's bucket being its number modulo theirs, and the partitions a multiple of the buckets, so that each has as many. Nothing in the fold changes, since a partition's states and cursor stay together. "+
		"For the rate %s buckets (half a core for each leader), for the room %s; %s partitions in each are %s, and `--partitions` ends at %s: it has to end later, or the fleet be %s.\n",
		number(u.buckets), number(full), number(u.each), number(u.each*u.buckets), number(c.limit[LimitPartitions]), plural(int(math.Ceil(u.each*u.buckets/c.limit[LimitPartitions])), "cluster"))
	fmt.Fprintf(&b, "2. **Nodes that answer for some buckets.** All states are %s cores and %s for each node that follows them, so %s groups of nodes that answer, with a proxy in front that hashes the vid as carstate does, and two nodes in each. Queries themselves take %s cores in all, the tables %s a group.\n",
		number(n.feedCores()), quantity(n.samples()*c.wire, "B/s"), number(u.groups), number(cores(c.query, n.queries())), quantity(n.cars*c.table/u.groups, "B"))
	fmt.Fprintf(&b, "3. **Small records for those who answer.** Of a state's %s bytes an answer needs 40. A second record with these alone, written when a verdict changes or is half as old as `--max-age`, would leave a small part of both figures in step 2.\n", number(c.wire))
	fmt.Fprintf(&b, "4. **States stored less often.** A state that says nothing new can wait for as long as its telemetry is kept, since folding again comes to the same. Stored once a minute, %s buckets become %s.\n", number(u.buckets), number(math.Ceil(u.buckets*sampleEvery/60)))
	b.WriteString("5. **Regions by leaf nodes.** NATS servers in each region mirror the buckets, and nodes there follow the mirror: a state crosses between regions once and not once a node. carstate writes its heartbeats into the streams that it follows, and would have to write them at the origin and see them come back by the mirror, so that the age of a copy stays honest.\n")
	fmt.Fprintf(&b, "6. **Sources without records.** A source for each car would be %s in SOURCES. Cars with certificates of their own, checked against one authority, need none.\n", quantity(n.cars*c.limit[ScaleSourceBytes], "B"))
	b.WriteString("\nWith the steps 1 and 2, machines as assumed above and half of each planned for:\n\n")
	writeFleets(&b, c, need.bucketed, []row[bucketed]{
		{"buckets", fmt.Sprintf("cars / 10 s × %s / %s core", per(c.leader, "µs"), number(streamInUse)), "n", func(u bucketed) float64 { return u.buckets }},
		{"nodes that take in and judge", fmt.Sprintf("samples × %s / %s cores, at least 2", per(c.ingest+c.firstDerive, "µs"), number(nodeCores)), "n", func(u bucketed) float64 { return u.judging }},
		{"partitions of a bucket", fmt.Sprintf("samples / %s, or %s × nodes that judge if that is more, / buckets", number(partitionSamples), number(nodePartitions)), "n", func(u bucketed) float64 { return u.each }},
		{"**partitions in all**", "× buckets", "n", func(u bucketed) float64 { return u.each * u.buckets }},
		{"samples a second of a partition", "samples / partitions", "n", func(u bucketed) float64 { return math.Floor(u.samples() / (u.each * u.buckets)) }},
		{"groups of nodes that answer", fmt.Sprintf("samples × %s / %s cores", per(c.feed, "µs"), number(nodeCores/2)), "n", func(u bucketed) float64 { return u.groups }},
		{"nodes that answer", "2 × groups", "n", func(u bucketed) float64 { return 2 * u.groups }},
		{"**nodes in all**", "", "n", func(u bucketed) float64 { return u.judging + 2*u.groups }},
		{"**servers in all**", fmt.Sprintf("samples × (%s + 2 × %s) / %s cores, at least 3", per(c.firstStore, "µs"), per(c.send, "µs"), number(nodeCores)), "n", func(u bucketed) float64 { return u.servers }},
		{"cores in use, all machines", "take in and judge, feeds twice, queries, store and send", "cores", func(u bucketed) float64 {
			return u.workCores() + 2*u.feedCores() + u.storing()
		}},
		{"memory of a node that judges", "states at hand, connections, telemetry on its way", "B", func(bucketed) float64 { return cachedBytes }},
		{"memory of a node that answers", "cars × " + per(c.table, "B") + " / groups + 1 GB", "B", func(u bucketed) float64 { return u.cars*c.table/u.groups + cachedBytes }},
		{"memory of a server", "3 × cars × " + per(c.server, "B") + " / servers + 8 GB, or what is on its disk if that is less", "B", func(u bucketed) float64 { return 3*u.cars*c.server/u.servers + min(blocksBytes, u.diskOfServer()) }},
		{"disk of a server", fmt.Sprintf("3 × (cars × 3 × %s + samples × 3,600 s × %s, of which at most %s GiB a bucket are kept) / servers", per(c.state, "B"), per(c.sample, "B"), number(c.limit[LimitTelemetry])), "B", bucketed.diskOfServer},
		{"written to a server's disk", "samples × " + per(c.written, "B") + " / servers", "B/s", func(u bucketed) float64 { return u.samples() * c.written / u.servers }},
		{"network into a node that judges", fmt.Sprintf("samples × (%s + %s + %s) / nodes: what cars send, telemetry to judge, states that are read", per(bodyBytes, "B"), per(c.sample, "B"), per(c.state, "B")), "B/s", func(u bucketed) float64 {
			return u.samples() * (bodyBytes + c.sample + c.state) / u.judging
		}},
		{"network into a node that answers", "samples × " + per(c.wire, "B") + " / groups", "B/s", func(u bucketed) float64 { return u.samples() * c.wire / u.groups }},
		{"network into a server, on average", fmt.Sprintf("samples × (%s + %s) / servers", per(c.telemetry, "B"), per(c.between, "B")), "B/s", func(u bucketed) float64 {
			return u.samples() * (c.telemetry + c.between) / u.servers
		}},
		{"network out of a server, on average", fmt.Sprintf("samples × (%s + 2 × %s + %s) / servers", per(c.between, "B"), per(c.wire, "B"), per(c.state, "B")), "B/s", func(u bucketed) float64 {
			return u.samples() * (c.between + 2*c.wire + c.state) / u.servers
		}},
	})
	fmt.Fprintf(&b, "The several clusters of today come to %s cores to take in, judge and answer, %s for their nodes' feeds and %s to store and send, and somebody has to run them; the one cluster to %s, %s and %s. "+
		"%s The machines of such a cluster have little to do: several clusters may share them, as long as no two copies of a stream are on one.\n",
		number(n.clusters()*one.workCores()), number(n.clusters()*one.nodes()*one.feedCores()), number(n.clusters()*3*one.coresOfServer()),
		number(u.workCores()), number(2*u.feedCores()), number(u.storing()), one.states())
	return b.String()
}

// states says whether a cluster of this plan reads states, which one of all cars does.
func (n need) states() string {
	if n.atHand() {
		return fmt.Sprintf("Clusters of %s cars have every state at hand, and the one cluster reads nearly every state from the servers when its car reports.", count(math.Floor(n.cars)))
	}
	return "Both read most states from the servers when their cars report."
}

// planCosts says what the costs in the tables are those of.
func (c *costs) planCosts() string {
	one := need{c, 1e8, sampleEvery}.cluster()
	text := fmt.Sprintf("Cores are those of one partition with %s samples a second, %s µs a sample in all; a partition of these clusters has %s. ",
		number(c.rates[0]), number(c.atRates[0]), number(math.Floor(one.samples()/one.partitionsFor())))
	if s := c.spread; s != nil {
		return text + fmt.Sprintf("Over %s, with %s in each, a sample cost %s µs. Plan for the more of both.\n\n",
			plural(int(s.partitions), "partition"), number(math.Floor(s.rate/s.partitions)), number(s.all))
	}
	return text + fmt.Sprintf("What a sample costs there was not measured; in one partition with %s it was %s µs, at rest included. So take the cores for the least, and plan at least twice as many.\n\n",
		number(c.rates[1]), number(c.atRates[1]))
}

// lagText says whether the slice was judged as fast as it came. Runs of before have
// not measured all of it.
func (d *Document) lagText() string {
	of := func(name string) *Figure { return d.find(Scale, ScaleSlice, name) }
	half, most, ratio := of(ScaleLagHalf), of(ScaleLagMost), of(ScaleLagGrowth)
	if half == nil || most == nil || ratio == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**Does a partition keep up with such a slice?** Half of the states were in a fleet table %s ms after their samples were due, and 99 of 100 within %s ms. ", number(half.Value), number(most.Value))
	steady := ratio.Met == nil || *ratio.Met
	if steady {
		fmt.Fprintf(&b, "The median of the last quarter was %s × that of the first. ", number(ratio.Value))
	} else {
		fmt.Fprintf(&b, "The median of the last quarter was %s × that of the first, where %s was wanted: the lag was not steady. ", number(ratio.Value), ratio.Aim)
	}
	grows, left := of(ScaleLagSlope), of(ScaleLeft)
	if grows == nil || left == nil {
		if !steady {
			b.WriteString("How it would have gone on, and what was left to judge at the end, was not measured in this run, so that it does not show that a partition keeps up for longer than the run took. ")
		}
		return strings.TrimSpace(b.String()) + "\n\n"
	}
	fmt.Fprintf(&b, "Over the whole run the median grew by %s ms a second (wanted %s), and when the last sample was acknowledged what had come in %s s was not judged yet (wanted %s). ", number(grows.Value), grows.Aim, number(left.Value), left.Aim)
	if inUse, others := of(ScaleInUse), of(ScaleOthers); inUse != nil && others != nil {
		fmt.Fprintf(&b, "%s %% of the processors were in use meanwhile, %s %% by others: the fuller they are, the more the lag goes up and down by chance. ", number(inUse.Value), number(others.Value))
	}
	met := func(f *Figure) bool { return f.Met == nil || *f.Met }
	switch {
	case !met(grows) || !met(left):
		b.WriteString("So on the measured machine, which did all else too, it **fell behind**. ")
	case !steady:
		b.WriteString("So it did not fall behind, though the lag went up and down with whatever else the machine did. ")
	default:
		b.WriteString("So it did not fall behind. ")
	}
	return strings.TrimSpace(b.String()) + "\n\n"
}

// partitionsTried says up to how many partitions were measured on one node.
func (d *Document) partitionsTried() string {
	most, failed := 0, ""
	for i := range d.Figures {
		f := &d.Figures[i]
		var n int
		if _, err := fmt.Sscanf(f.Subject, "%d"+ScalePartitions, &n); err != nil || f.Part != Scale || f.Name != ScaleUntilJudged {
			continue
		}
		if f.Unit == "s" {
			most = max(most, n)
			continue
		}
		failed += fmt.Sprintf(" With %s **not all were judged** within %s s (%s).", number(float64(n)), number(f.Value), f.Remark)
	}
	text := "each that is judged has a consumer of TELEMETRY. A NATS server lets a stream have 1,000 unless it says otherwise; where that is too few carstate has it say two for each partition and 500. A limit of the account, `max_consumers`, must not be lower. "
	if most > 0 {
		text += fmt.Sprintf("Up to %s were tried on one node (the table above), and more were not.", number(float64(most)))
	}
	return text + failed
}
