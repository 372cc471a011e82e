package query

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carstate/internal/periodic"
)

// AccessLogConfig says where one line a request goes. Log is required; the zero
// value of everything else works, once there is a File or an Out.
type AccessLogConfig struct {
	// File is appended to. [AccessLog.Reopen] opens it again after it was
	// rotated. Empty: Out is written to.
	File     string
	Out      io.Writer
	JSON     bool
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: nothing is registered
}

// AccessLog writes one line a request. Whoever answers a request only leaves a
// record in a ring, without a lock; the lines are made and written in the
// background. Where they cannot be written as fast as requests come, they are
// dropped and counted: an answer never waits for a disk.
//
// A line holds no byte of a request. The vehicle goes by a hash with a seed of this
// process, the token by its ID.
type AccessLog struct {
	config AccessLogConfig
	seed   maphash.Seed
	ring   ring
	lost   prometheus.Counter

	reopen  atomic.Bool // the file is to be opened again
	file    *os.File    // nil: Out is written to
	sink    sink
	out     *bufio.Writer
	line    []byte
	broken  bool // the last write failed; only a change is told
	stop    context.CancelFunc
	stopped chan struct{}
}

// logEvery is how often records become lines.
const logEvery = 50 * time.Millisecond

// OpenAccessLog opens the file and starts to write. Close ends it.
func OpenAccessLog(c AccessLogConfig) (*AccessLog, error) {
	var file *os.File
	to := c.Out
	if c.File != "" {
		var err error
		if file, err = openLog(c.File); err != nil {
			return nil, err
		}
		to = file
	}
	a := newAccessLog(c, to)
	a.file = file
	var running context.Context
	running, a.stop = context.WithCancel(context.Background())
	go a.run(running)
	return a, nil
}

// newAccessLog makes one that nothing drains yet.
func newAccessLog(c AccessLogConfig, to io.Writer) *AccessLog {
	a := &AccessLog{
		config: c, seed: maphash.MakeSeed(), sink: sink{to: to},
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carstate_access_log_lines_dropped_total",
			Help: "Requests that are missing in the access log because it could not be written fast enough.",
		}),
		stopped: make(chan struct{}),
	}
	a.ring.init()
	a.out = bufio.NewWriterSize(&a.sink, 64<<10)
	if c.Registry != nil {
		c.Registry.MustRegister(a.lost)
	}
	return a
}

// openLog opens the file.
func openLog(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		if path, ok := errors.AsType[*os.PathError](err); ok {
			err = path.Err
		}
		return nil, fmt.Errorf("the access log cannot be opened for writing: %w", err)
	}
	return f, nil
}

// Close writes what is left. It is called once nobody answers any more.
func (a *AccessLog) Close() error {
	a.stop()
	<-a.stopped
	if a.file != nil {
		return a.file.Close()
	}
	return nil
}

// Reopen has the file opened again under its name soon, as is needed after the old one
// was moved away. It returns at once and may be called at any time.
func (a *AccessLog) Reopen() { a.reopen.Store(true) }

// run turns records into lines until Close.
func (a *AccessLog) run(ctx context.Context) {
	defer close(a.stopped)
	for range periodic.Every(ctx, logEvery) {
		a.drain()
		if a.reopen.Swap(false) {
			a.openAgain()
		}
	}
	a.drain()
}

// openAgain replaces the open file by the one that now has its name. If that cannot be
// opened, lines go on to where they went.
func (a *AccessLog) openAgain() {
	if a.file == nil {
		return
	}
	f, err := openLog(a.config.File)
	if err != nil {
		a.config.Log.Warn("lines go on to the old access log: mend this and send SIGHUP again", "error", err)
		return
	}
	_ = a.file.Close()
	a.file, a.sink = f, sink{to: f}
	a.config.Log.Info("the access log was reopened")
}

// drain writes all records that are there.
func (a *AccessLog) drain() {
	var r record
	lines := 0
	a.sink.lines = 0
	for a.ring.take(&r) {
		if lines == 0 && a.sink.torn {
			_ = a.out.WriteByte('\n') // ends the line in which a full disk stopped us
		}
		a.line = a.format(a.line[:0], &r)
		_, _ = a.out.Write(a.line) // an error stays until Flush
		lines++
	}
	if lines == 0 {
		return
	}
	err := a.out.Flush()
	if err != nil {
		a.lost.Add(float64(max(lines-a.sink.lines, 0)))
		a.out.Reset(&a.sink)
	}
	a.tell(err)
}

// sink is what lines are written to. It counts those that were taken whole, and
// knows whether the last one was.
type sink struct {
	to    io.Writer
	lines int
	torn  bool
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	if n > 0 {
		s.lines += bytes.Count(p[:n], []byte{'\n'})
		s.torn = p[n-1] != '\n'
	}
	return n, err
}

// tell logs that writing fails, and that it works again.
func (a *AccessLog) tell(err error) {
	if err != nil && !a.broken {
		a.config.Log.Warn("the access log cannot be written: lines are dropped", "error", err)
	} else if err == nil && a.broken {
		a.config.Log.Info("the access log is written again")
	}
	a.broken = err != nil
}

// record is what is known of a request and its answer. It points to nothing of the
// request.
type record struct {
	at        time.Time
	took      time.Duration
	from      netip.Addr
	ids       *requestIDs // writes the request's ID, whose number is id
	id        uint64
	token     string // ID of the token; empty if it did not count
	vehicle   uint64 // hash of the vid
	hasVid    bool
	method    string // GET, HEAD or other
	status    int
	operation operation
	outcome   outcome
}

// note leaves a record of an answer. It takes no lock and does not allocate.
func (a *AccessLog) note(r *request, w *response, ids *requestIDs, from netip.Addr, at time.Time, took time.Duration) {
	e := record{
		at: at, took: took, from: from, ids: ids, id: w.id, token: w.token,
		hasVid: len(w.vid) > 0, method: "other",
		status: w.status, operation: w.operation, outcome: w.outcome,
	}
	switch string(r.method) {
	case "GET":
		e.method = "GET"
	case "HEAD":
		e.method = "HEAD"
	}
	if e.hasVid {
		e.vehicle = maphash.Bytes(a.seed, w.vid)
	}
	if !a.ring.put(&e) {
		a.lost.Inc()
	}
}

// format writes a line. No value needs quoting: each is a number, an address, or a
// word of ours.
func (a *AccessLog) format(b []byte, r *record) []byte {
	f := fields{b: b, json: a.config.JSON}
	f.key("time")
	f.quote()
	f.b = r.at.UTC().AppendFormat(f.b, "2006-01-02T15:04:05.000Z")
	f.quote()
	f.key("request_id")
	f.quote()
	f.b = r.ids.append(f.b, r.id)
	f.quote()
	if r.from.IsValid() {
		f.key("from")
		f.quote()
		f.b = r.from.AppendTo(f.b)
		f.quote()
	}
	f.key("method")
	f.word(r.method)
	f.key("operation")
	f.word(r.operation.String())
	f.key("status")
	f.b = strconv.AppendInt(f.b, int64(r.status), 10)
	f.key("outcome")
	f.word(r.outcome.String())
	f.key("duration_us")
	f.b = strconv.AppendInt(f.b, r.took.Microseconds(), 10)
	if r.token != "" {
		f.key("token")
		f.word(r.token)
	}
	if r.hasVid {
		f.key("vehicle")
		f.quote()
		f.b = appendHex(f.b, r.vehicle)
		f.quote()
	}
	if f.json {
		f.b = append(f.b, '}')
	}
	return append(f.b, '\n')
}

// fields writes names and values as JSON or as text.
type fields struct {
	b    []byte
	json bool
	some bool
}

func (f *fields) key(name string) {
	switch {
	case f.json && !f.some:
		f.b = append(f.b, '{')
	case f.json:
		f.b = append(f.b, ',')
	case f.some:
		f.b = append(f.b, ' ')
	}
	f.some = true
	f.quote()
	f.b = append(f.b, name...)
	f.quote()
	if f.json {
		f.b = append(f.b, ':')
	} else {
		f.b = append(f.b, '=')
	}
}

func (f *fields) quote() {
	if f.json {
		f.b = append(f.b, '"')
	}
}

func (f *fields) word(s string) {
	f.quote()
	f.b = append(f.b, s...)
	f.quote()
}

// appendHex writes 16 hexadecimal digits.
func appendHex(b []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return b
}

// ring is a bounded queue with many writers and one reader, without locks. Each
// slot says whose turn it is: a writer may fill the slot of a position when turn is
// that position, the reader may empty it when turn is one more.
type ring struct {
	slots []slot
	next  atomic.Uint64 // where the next record goes
	read  uint64        // what the reader takes next; the reader's own
}

type slot struct {
	turn atomic.Uint64
	record
}

// ringSlots is how many records wait at most: what 300,000 requests a second leave
// in logEvery. A power of two.
const ringSlots = 1 << 14

func (r *ring) init() {
	r.slots = make([]slot, ringSlots)
	for i := range r.slots {
		r.slots[i].turn.Store(uint64(i))
	}
}

// put reports false where the ring is full.
func (r *ring) put(e *record) bool {
	for {
		at := r.next.Load()
		s := &r.slots[at%ringSlots]
		turn := s.turn.Load()
		if turn == at {
			if r.next.CompareAndSwap(at, at+1) {
				s.record = *e
				s.turn.Store(at + 1)
				return true
			}
		} else if turn < at {
			return false
		}
	}
}

// take reports false where no record is there.
func (r *ring) take(e *record) bool {
	s := &r.slots[r.read%ringSlots]
	if s.turn.Load() != r.read+1 {
		return false
	}
	*e = s.record
	s.turn.Store(r.read + ringSlots)
	r.read++
	return true
}
