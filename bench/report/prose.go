package report

// preface opens the page.
const preface = `What a query, a vehicle and a sample cost, measured side by side with what an expert
would pick instead, in one run on one machine. Every figure and every plot on this page
comes from ` + "[`performance/results.json`](performance/results.json)" + `, which ` + "`make bench`" + ` writes. A figure is
the median of its rounds; least and most stand in brackets. What else the machine did
meanwhile moves all subjects of a round alike, so trust the ratios first.

` + "```" + `
make bench                                 # everything; about 20 minutes on two cores
make bench BENCHFLAGS='-quick'             # to see that it works, about 3 minutes
make bench BENCHFLAGS='-parts query'       # one part; the others keep their figures
make bench BENCHFLAGS='-render'            # this page again, from what was measured
` + "```" + `

`

// partsInOrder are the sections of the page. The words are written here; the
// figures never are.
var partsInOrder = []struct {
	name, title       string
	asked, how, tried string // paragraphs; "" for none
}{
	{
		"query", "The query",
		"One query costs the server no more processor time than nginx with lua and shared dicts that does the same look-ups, and then no more than 0.9 of it. " +
			"It allocates nothing. The cost grows by no more than 1.15 × from a thousand vehicles to ten million and from one token to a hundred thousand.",
		"Every peer answers the same body from the same look-ups: is the token known, what is the vehicle's state? The server has one core, the generator the other. " +
			"Processor time is user and system time of the server's processes from `/proc`, over what wrk counted. All peers run at once and are measured in turn. " +
			"Latencies come from a generator that sends at even distances, whatever the answers do, at half of what wrk found to be the peer's capacity; a latency counts from the time at which the request was to be sent. " +
			"carstate is the binary that people run, with all it always does: the token hashed and its checksum tested, expiry, grants of a thousand vehicles, a rate limit on the token, metrics, request ids, freshness, and its engine beside it. " +
			"The vehicles report through ingest every other minute, between the runs. nginx runs as one process, as its worker would, and answers without any of those duties; one row adds a counter, a rate and the headers to it. " +
			"webdis takes one command a request, so both look-ups are a script in Redis. The rows of many vehicles and tokens are the query server alone with tables filled in memory: ten million vehicles would take hours to report.",
		"The listener ran on fasthttp first. A profile showed what that costs beside the answer: the head parsed twice, since we trust no parser but our own; every header copied three times; the read and write deadlines moved for every request. " +
			"Now a loop a connection reads and writes HTTP itself (`internal/query/converse.go`): deadlines move when a quarter of their time is over, dates are remembered by the day, what was pipelined is answered with one write. " +
			"What is left is mostly the kernel's, as the table shows: reading, writing and waiting on sockets, where Go asks the kernel once more a request than nginx does (a read that finds nothing, before it waits). `go test -run ^$ -bench Loopback -cpuprofile cpu.out ./internal/query` has the rest by function, `-bench Answer` the answer alone. " +
			"The access log adds one record in a ring without a lock; lines are made and written in the background.",
	},
	{
		"vehicle", "The vehicle",
		"A vehicle in the answer table costs at most 64 bytes of memory at ten million vehicles, all told, hopefully 40; the collector's marking of the table at most 20 ms of processor time; growing it makes no query wait for more than 10 ms.",
		"", "",
	},
	{
		"sample", "The sample",
		"At least 100,000 samples a second acknowledged over HTTP and on disk; a lone sample waits for no company; from publishing to the answered query at most 10 ms (p99) at 10,000 samples a second.",
		"", "",
	},
	{
		"restart", "The restart",
		"Ready within 4 s of a clean stop and within 8 s of a kill with a million vehicles; the store stays within three times the live data.",
		"", "",
	},
}
