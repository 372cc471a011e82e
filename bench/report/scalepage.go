package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const scalePageFile = "scale.md"

// fleets are the sizes that the page works out.
var fleets = []float64{1e4, 1e5, 1e6, 1e7, 1e8}

// scalePage is the page on fleets of all sizes; "" before the part was measured.
func (d *Document) scalePage() string {
	i := slices.IndexFunc(d.Runs, func(r Run) bool { return r.Part == Scale })
	if i < 0 {
		return ""
	}
	run := d.Runs[i]
	var b strings.Builder
	b.WriteString("# How far it goes\n\n<!-- Written by `make bench` from performance/results.json. Do not edit: change bench/report. -->\n\n")
	c, lacking := costsOf(d)
	if len(lacking) > 0 {
		fmt.Fprintf(&b, "Not worked out yet: figures of these parts are lacking: %s. Measure them with `make bench`.\n", strings.Join(lacking, ", "))
		return b.String()
	}
	b.WriteString(scalePreface)
	fmt.Fprintf(&b, "Measured on %s, version %s, %s, in %s.\n", run.Machine, run.Version, run.At.UTC().Format(time.DateOnly), run.Took.Round(time.Second))
	if run.Quick {
		b.WriteString("\n**These figures are from a quick run and rough.**\n")
	}
	b.WriteString("\n## In short\n\n" + c.inShort())
	b.WriteString("\n## Set-ups\n\n" + c.setups())
	b.WriteString("\n## What was measured\n\n" + scaleHow + "\n\n")
	d.writeMeasured(&b)
	for _, p := range d.Plots {
		if p.Part == Scale {
			fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", p.Title, plotDir, p.File)
		}
	}
	b.WriteString(d.lagText())
	d.writePartitions(&b)
	b.WriteString("## What is assumed\n\n" + assumed())
	b.WriteString("\n## The arithmetic\n\n" + scaleArithmetic + "\n\n" + c.arithmetic())
	b.WriteString("\n## Which limit is met first\n\n" + scaleLimits + "\n\n" + c.limits())
	b.WriteString("\n## How many partitions\n\n" + c.partitionsText())
	b.WriteString("\n## One, ten, a hundred million cars: a plan\n\n" + c.plan())
	b.WriteString("\n## What these figures are not\n\n" + scaleNot)
	return b.String()
}

// writeMeasured lists the figures of the part, without the limits and those of
// the partitions, which have tables of their own.
func (d *Document) writeMeasured(b *strings.Builder) {
	b.WriteString("| who | what | measured | remark |\n|---|---|---:|---|\n")
	for i := range d.Figures {
		f := &d.Figures[i]
		if f.Part != Scale || f.Subject == ScaleLimits || strings.HasSuffix(f.Subject, ScalePartitions) {
			continue
		}
		text, remark := f.text(), f.Remark
		if f.Aim != "" {
			remark = strings.TrimPrefix(remark+"; ", "; ") + "wanted " + f.Aim + ": " + f.met()
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", f.Subject, f.Name, text, remark)
	}
	b.WriteByte('\n')
}

// writePartitions puts the numbers of partitions side by side.
func (d *Document) writePartitions(b *strings.Builder) {
	var subjects, names, remarks []string
	cell := make(map[[2]string]string)
	for i := range d.Figures {
		f := &d.Figures[i]
		if f.Part != Scale || !strings.HasSuffix(f.Subject, ScalePartitions) {
			continue
		}
		if !slices.Contains(subjects, f.Subject) {
			subjects = append(subjects, f.Subject)
		}
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
		cell[[2]string{f.Subject, f.Name}] = f.text()
		if f.Name == ScaleUntilJudged && f.Unit != "s" {
			remarks = append(remarks, f.Subject+": "+f.Remark)
		}
	}
	if len(subjects) == 0 {
		return
	}
	b.WriteString("One node with every role that has all partitions, at rest and then under one and the same small load:\n\n| |")
	for _, s := range subjects {
		fmt.Fprintf(b, " %s |", s)
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(subjects)) + "\n")
	for _, name := range names {
		fmt.Fprintf(b, "| %s |", name)
		for _, s := range subjects {
			fmt.Fprintf(b, " %s |", cell[[2]string{s, name}])
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for _, r := range remarks {
		fmt.Fprintf(b, "- %s\n", r)
	}
	if len(remarks) > 0 {
		b.WriteByte('\n')
	}
}

// quantity writes a value with its unit; where there is none, a dash.
func quantity(v float64, unit string) string {
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "–"
	case unit == "B" || unit == "B/s":
		for _, u := range []struct {
			size float64
			name string
		}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
			if v >= u.size {
				return number(v/u.size) + " " + u.name + unit
			}
		}
	case unit == "n": // a number of something
		if v >= 1e6 {
			return number(v/1e6) + " M"
		}
		return number(math.Ceil(v))
	case unit == "s" && v >= 120:
		return number(v/60) + " min"
	case v < 0.01:
		return "< 0.01 " + unit
	}
	return strings.TrimSpace(number(v) + " " + unit)
}

// arithmetic is what fleets of all sizes need.
func (c *costs) arithmetic() string {
	perSample := func(v float64) string { return number(v) + " µs" }
	rows := []struct {
		what, how, unit string
		of              func(need) float64
	}{
		{"samples a second", "cars / " + number(sampleEvery) + " s", "n", need.samples},
		{"queries a second", "cars / " + number(queryEvery) + " s", "n", need.queries},
		{"cores that take samples in", "samples × " + perSample(c.ingest), "cores", func(n need) float64 { return cores(c.ingest, n.samples()) }},
		{"cores that judge", "samples × " + perSample(c.derive) + ", or " + perSample(c.firstDerive) + " where states have to be read", "cores", func(n need) float64 { return cores(n.deriveEach(), n.samples()) }},
		{"cores that answer", "queries × " + perSample(c.query), "cores", func(n need) float64 { return cores(c.query, n.queries()) }},
		{"**cores of every node for its feed**", "samples × " + perSample(c.feed), "cores", need.feedCores},
		{"nodes", fmt.Sprintf("the cores before / (%s of %s − the feed), at least 2", number(machineCores*coresInUse), number(machineCores)), "n", need.nodes},
		{"cores of the servers that store", "samples × " + perSample(c.store) + ", or " + perSample(c.firstStore) + " where states have to be read", "cores", need.storeCores},
		{"cores of the servers for feeds", "nodes × samples × " + perSample(c.send), "cores", need.sendCores},
		{"**cores of the one server that leads STATES**", "samples × " + perSample(c.leader) + "; most of it one after the other", "cores", need.leaderCores},
		{"memory of each node for its table", "cars × " + number(c.table) + " B", "B", func(n need) float64 { return n.cars * c.table }},
		{"memory of each server for the index", "cars × " + number(c.server) + " B: what the resident memory of a process with the engine grows by from 1 M to 10 M vehicles, without the table", "B", func(n need) float64 { return n.cars * c.server }},
		{"and at the most, right after its start", "cars × " + number(c.started) + " B, with what the recovery has left to the garbage collector; after a feed has read all " + number(c.read) + " B, with blocks", "B", func(n need) float64 { return n.cars * c.started }},
		{"states on each server's disk", "cars × " + number(c.state) + " B, and up to three times that until it is compacted", "B", func(n need) float64 { return n.cars * c.state }},
		{"telemetry of an hour on each server's disk", "samples × 3,600 s × " + number(c.sample) + " B", "B", func(n need) float64 { return n.samples() * secondsAnHour * c.sample }},
		{"written to each server's disk", "samples × " + number(c.written/3) + " B", "B/s", func(n need) float64 { return n.samples() * c.written / 3 }},
		{"network into each node for its feed", "samples × " + number(c.wire) + " B", "B/s", func(n need) float64 { return n.samples() * c.wire }},
		{"network out of the servers for feeds", "that × nodes", "B/s", func(n need) float64 { return n.samples() * c.wire * n.nodes() }},
		{"network between servers", "samples × " + number(c.between) + " B", "B/s", func(n need) float64 { return n.samples() * c.between }},
		{"a node's start, until its feed begins", "cars × " + number(c.setup*1e6) + " s a million", "s", func(n need) float64 { return n.cars * c.setup }},
		{"and until it has brought all", "cars / " + number(c.feedRate) + " a second", "s", func(n need) float64 { return n.cars / c.feedRate }},
		{"a server's start after a crash, without the election", "cars × " + number(c.recovery*1e6) + " s a million", "s", func(n need) float64 { return n.cars * c.recovery }},
	}
	var b strings.Builder
	b.WriteString("| what | how |")
	for _, f := range fleets {
		fmt.Fprintf(&b, " %s cars |", count(f))
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(fleets)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.what, r.how)
		for _, f := range fleets {
			fmt.Fprintf(&b, " %s |", quantity(r.of(need{c, f, sampleEvery}), r.unit))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// limit is what a fleet meets at a size.
type limit struct {
	what, how, then string
	cars            float64
}

// met are the limits, the one that is met first before the others.
func (c *costs) met() []limit {
	perCar := 1 / sampleEvery // samples a second
	l := c.limit
	telemetry := l[LimitTelemetry] * gib
	const nodeRoom = machineCores * coresInUse * 1e6 // µs a second
	limits := []limit{
		{"cars with an MQTT connection of their own, on one node", number(l[LimitConnections]) + " connections",
			"More ingest nodes, which works today, or gateways that send for many cars by HTTP, which is also a small part of the CPU.", l[LimitConnections]},
		{"states at hand, over all partitions", number(l[LimitCached]) + " vehicles, shared out evenly among the partitions whatever the number of nodes",
			"Nothing breaks: states are read from the servers when a car reports, at the price in the table above. To be built: a number that follows from the node's memory and the partitions that it has.", l[LimitCached]},
		{"**one server leads STATES, half a core**", fmt.Sprintf("%s core / %s µs a sample", number(streamInUse), number(c.leader)),
			"Cars report less often; or several clusters, each with a part of the fleet. To be built: buckets, as below.", streamInUse * 1e6 / c.leader / perCar},
		{"one server leads STATES, a whole core", fmt.Sprintf("1 core / %s µs a sample", number(c.leader)),
			"Beyond this the backlog grows until ingest answers 503: nothing is lost, and senders wait.", 1e6 / c.leader / perCar},
		{"a node's feed, one after the other", fmt.Sprintf("%s states a second", number(c.feedRate)),
			"To be built: a feed a bucket, each by itself; nodes that answer for some buckets only.", c.feedRate / perCar},
		{"a node's feed, half of its cores", fmt.Sprintf("%s cores / %s µs a state", number(machineCores*coresInUse), number(c.feed)),
			"To be built: nodes that answer for some buckets only, behind a proxy that knows which. Nodes with no role but `ingest` and `derive` follow no states already.", nodeRoom / c.feed / perCar},
		{"STATES is full", fmt.Sprintf("%s GiB / %s B a state", number(l[LimitStates]), number(c.state)),
			"The vehicle longest unheard of is dropped. To be built: buckets, or a flag for the limit.", l[LimitStates] * gib / c.state},
		{"TELEMETRY fills between two looks of its trimmer", fmt.Sprintf("%s of %s GiB in %s s / %s B a sample", number(trimRoom), number(l[LimitTelemetry]), number(trimSeconds), number(c.sample)),
			"Ingest answers 503. To be built: a flag for the limit, or buckets.", telemetry * trimRoom / trimSeconds / c.sample / perCar},
		{"TELEMETRY keeps less than its hour", fmt.Sprintf("0.8 of %s GiB / 3,600 s / %s B a sample", number(l[LimitTelemetry]), number(c.sample)),
			"Nothing breaks: what is judged goes sooner. What the console shows of a vehicle's past gets shorter.", telemetry * 0.8 / secondsAnHour / c.sample / perCar},
		{"a minute without judging fills half of TELEMETRY", fmt.Sprintf("%s GiB / 60 s / %s B a sample", number(l[LimitTelemetry]/2), number(c.sample)),
			"A failover of derive (10 s) still fits; longer outages are seen by senders as 503.", telemetry / 2 / 60 / c.sample / perCar},
		{"a feed from the start is set up in time", fmt.Sprintf("%s s / %s s a million", number(l[LimitFeedSetup]), number(c.setup*1e6)),
			"A node could not start any more. To be built: buckets, or a longer patience.", l[LimitFeedSetup] / c.setup},
		{"the index of STATES in a server's memory, with what its recovery leaves", fmt.Sprintf("%s GB / %s B a vehicle", number(machineGB/2), number(c.started)),
			"Larger machines, or a limit of its memory (`GOMEMLIMIT`), which has the garbage collected sooner.", machineGB / 2 * 1e9 / c.started},
		{"the index of STATES in a server's memory", fmt.Sprintf("%s GB / %s B a vehicle", number(machineGB/2), number(c.server)),
			"Larger machines, or buckets over more servers.", machineGB / 2 * 1e9 / c.server},
		{"a node's table", fmt.Sprintf("%s GB / %s B a vehicle", number(machineGB/2), number(c.table)),
			"Nodes that answer for some buckets only.", machineGB / 2 * 1e9 / c.table},
		{"a node's network", fmt.Sprintf("%s of %s Gbit/s / %s B a state", number(networkInUse), number(machineGbit), number(c.wire)),
			"To be built: records that hold the two answers and not the whole state, 40 bytes in place of the state.", machineGbit / 8 * 1e9 * networkInUse / c.wire / perCar},
		{"SOURCES, a source for each car", fmt.Sprintf("%s GiB / %s B a source", number(l[LimitRecords]), number(l[ScaleSourceBytes])),
			"Gateways that speak for many cars: a source for each of those. To be built for cars that speak for themselves: keys that need no record, such as client certificates.", l[LimitRecords] * gib / l[ScaleSourceBytes]},
		{"AUDIT, a deed for each car's source", fmt.Sprintf("%s GiB / %s B a deed", number(l[LimitRecords]), number(l[ScaleAuditBytes])),
			"The same. AUDIT is never trimmed, and when it is full no further source can be added.", l[LimitRecords] * gib / l[ScaleAuditBytes]},
	}
	slices.SortStableFunc(limits, func(a, b limit) int {
		switch {
		case a.cars < b.cars:
			return -1
		case a.cars > b.cars:
			return 1
		}
		return 0
	})
	return limits
}

func (c *costs) limits() string {
	var b strings.Builder
	b.WriteString("| met at | limit | how | what then |\n|---:|---|---|---|\n")
	for _, l := range c.met() {
		fmt.Fprintf(&b, "| %s cars | %s | %s | %s |\n", count(l.cars), l.what, l.how, l.then)
	}
	return b.String()
}
