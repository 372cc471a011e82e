package report

// preface opens the page.
const preface = `What a query, a vehicle and a sample cost, measured side by side with what an expert
would pick instead, in one run on one machine. Every figure and every plot on this page
comes from ` + "[`performance/results.json`](performance/results.json)" + `, which ` + "`make bench`" + ` writes. A figure is
the median of its rounds; least and most stand in brackets. What else the machine did
meanwhile moves all subjects of a round alike, so trust the ratios first.

` + "```" + `
make bench                                 # everything; about 25 minutes on two cores, half of it the restart
make bench BENCHFLAGS='-quick'             # to see that it works, about 3 minutes
make bench BENCHFLAGS='-parts query'       # one part; the others keep their figures
make bench BENCHFLAGS='-parts sample -only answer'   # some steps of that part, printed and not kept
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
			"The vehicles report through ingest every other minute, between the runs. nginx runs as one process, as its worker would, and answers without any of those duties. " +
			"Measured once on the machine above and no longer: nginx with lua that also counts, limits the rate and sets the headers, 17.4 µs a request; webdis in front of Redis, 27.5 µs. The rows of many vehicles and tokens are the query server alone with tables filled in memory: ten million vehicles would take hours to report.",
		"The listener ran on fasthttp first. A profile showed what that costs beside the answer: the head parsed twice, since we trust no parser but our own; every header copied three times; the read and write deadlines moved for every request. " +
			"Now a loop a connection reads and writes HTTP itself (`internal/query/converse.go`): deadlines move when a quarter of their time is over, dates are remembered by the day, what was pipelined is answered with one write. " +
			"What is left is mostly the kernel's, as the table shows: reading, writing and waiting on sockets, where Go asks the kernel once more a request than nginx does (a read that finds nothing, before it waits). `go test -run ^$ -bench Loopback -cpuprofile cpu.out ./internal/query` has the rest by function, `-bench Answer` the answer alone. " +
			"The access log adds one record in a ring without a lock; lines are made and written in the background.",
	},
	{
		"vehicle", "The vehicle",
		"A vehicle in the answer table costs at most 64 bytes of memory at ten million vehicles, all told, hopefully 40; the collector's marking of the table at most 20 ms of processor time; growing it makes no query wait for more than 10 ms.",
		"The table is filled by one goroutine while another one reads it, and is then emptied of nine tenths (`BenchmarkTable` in `internal/fleet`). " +
			"Memory is the heap in use after a collection, over the vehicles. " +
			"A collection's processor time is the least of several, less that of an empty heap: other work only adds to it. " +
			"Reads come one every 10 µs and count from when they were due, so that a pause is counted by every read that it delays. The same reads of a table that stays as it is, beside one that grows, show how much of that is the machine. " +
			"Measured once in the same way and no longer, with ten million vehicles: a locked Go map of ids and structs took 105 bytes a vehicle, 304 ms a collection and 10.3 ms (reads, p99.9); xsync's map 102 bytes, 824 ms and 25.6 ms. Redis, with a million, said 152 bytes a vehicle as a hash.",
		"A Go map of hashes and verdicts took 60 to 100 bytes a vehicle. The table is open addressing of our own (`internal/fleet/shard.go`): 1,024 shards, each grown by itself and by an eighth, so that little is copied at a time and little room stands empty; when vehicles go, shards shrink. " +
			"A slot has 32 bytes: a hash of 128 bits in place of the id, and both verdicts with their times in two words. There is no pointer in it, so the collector has nothing to mark. A reader takes no lock: it looks whether the shard changed while it read, and then reads again. " +
			"What is left over the 32 bytes is the room that open addressing needs.",
	},
	{
		"sample", "The sample",
		"At least 100,000 samples a second acknowledged over HTTP and on disk; a lone sample waits for no company; from publishing to the answered query at most 10 ms (p99) at 10,000 samples a second.",
		"The service is the built binary with its defaults: every write is fsynced before it is answered. Whoever sends runs beside it on the same two processors and is in every figure but those that say server CPU, which come from `/proc`. " +
			"A flood is a closed loop of a few connections; it ends when all that was acknowledged is judged. Lone samples, and those that are answered, come from an open loop that counts from when a sample was due. " +
			"For published to answered, 10,000 cars report in turn, ten a request, and beside them fifty times a second one of a hundred other cars sends one sample and asks in a loop until the answer's `Last-Modified` is that sample's time. Before that, all have reported once. " +
			"The stages are a CPU profile of a node in the bench's own process, told apart by the functions on the stack. JetStream alone stores the same bytes with the same settings; it is the limit of what can be acknowledged and judged. The decoder is measured by `BenchmarkDecode` in `internal/ingest`; measured once on the same line and no longer: encoding/json/v2 1,918 ns, goccy/go-json 1,155, bytedance/sonic 1,328, valyala/fastjson 443, without the checks of ours.",
		"All samples that wait go to disk as one message, which is what packing saves in the table. A usual line is read by our own code, all others by a general parser, and a fuzz target holds the two together. States are packed as they lie in memory, not field by field. " +
			"A backlog is folded for as long as the last fold took to store, up to 16 batches at once, so that a vehicle that is in it several times is stored once. One partition in place of four took the wait from 26 to 52 ms to 5 to 8 at 1,000 samples a second on one busy machine. " +
			"**From sample to answer.** Where p99 stands above 10 ms, this is where the time goes, traced on a disk in memory, ahead of all else on the machine, at 10,000 samples a second: half a millisecond until the sender has sent, as much until the sample is decoded, 0.3 to store it, 0.1 until it is read back, 0.9 until the fold before is stored, 2.1 to store the fold, next to nothing until the table has it, and 0.8 until the sender has asked again. " +
			"So a quarter of the median is the sender's, and more than half is the atomic batch. Of that, two fifths go into making the directory and the files in which the engine collects a batch, with an fsync for each file and each directory; then come storing, fsyncing the states, fsyncing the collected ones, and, before the next batch, removing them. On a real disk all of it takes longer and keeps the same shares. " +
			"The p99 is another matter: the engine rewrites a block of 8 MiB as soon as half of it was overwritten, within the batch that does it. At 10,000 states a second that is about once a second, for some 16 ms in memory and more on a disk, and one sample in a hundred meets it. " +
			"With blocks of 2 MB, in an engine changed for the purpose, p99 fell by a quarter (21.7 to 16.3 ms); that size cannot be set, as it follows from the stream's limit. " +
			"Tried and dropped: folding while the last fold is being stored, each batch expecting the cursor of the one before. The median stayed as it was, since the engine stores batches one after the other, and vehicles that were not at hand waited many times as long, since it answers questions for states in the same order. " +
			"More processors for Go's scheduler than there are (`GOMAXPROCS=4`) changed nothing. Not tried, because the trace shows nothing to be had: connections of their own for deliveries and writes, and feeding the table from the acknowledged fold instead of from the stream, which brings it as soon as the acknowledgement. " +
			"Not done, because it would change what an answer stands on: answering from a fold before it is stored. It would take the store out of the way altogether, but after a crash a node would for a moment answer older than it had.",
	},
	{
		"restart", "The restart",
		"Ready within 4 s of a clean stop and within 8 s of a kill with a million vehicles; the store stays within three times the live data.",
		"A store of full-size states, as cars have them that report every signal and have driven for ten minutes, is made through the engine in the atomic batches that derive uses; only the fsync of each batch is left to the engine's timer, or the filling would take hours. " +
			"The program is then started on it: once after it was ended in order, and once after kill -9 while cars report. Ready is the first 200 of `/readyz`, asked every 5 ms, counted from the start of the process. The files are in the page cache; a start after a power cut reads them from the disk besides. " +
			"Under load is after half a million samples, one a car in turn, so that the state of each must be read from the engine. " +
			"The updates are skewed as Zipf's law with exponent 1: half of them come from a hundredth of the cars. Live data is the store before the first of them, each state once. The size is looked at a hundred times on the way.",
		"At first the feed had the engine deliver each state once more after our check had read the files: a million vehicles took 8.0 s and 12.5 s of processor time to be ready, and 1,220 MB. Now the check, several blocks at a time, fills the table with what it reads anyway, and the feed goes on behind it if the engine counts as many subjects as were found. " +
			"Derive reads no states at the start but those of vehicles that report. STATES asks for the shortest window of duplicates: the engine read two minutes of records at each start to look for ids that no write has. " +
			"What is left of a start after kill -9 is mostly the engine's own recovery, which reads every block once more because its index is from before. " +
			"The engine tidies up every 5 s, not every 2 min, which keeps the store of skewed updates a quarter of the size; where every write is fsynced, each fold's batch does it too.",
	},
}
