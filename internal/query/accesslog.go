package query

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/periodic"
)

type AccessLogConfig struct {
	// File is appended to. If empty, lines go to Out.
	File     string
	Out      io.Writer
	JSON     bool
	Log      *slog.Logger // gets errors of writing
	Registry prometheus.Registerer
}

// AccessLog writes a line per request, in the background: the goroutine that answers only queues a
// record, and lines are dropped and counted if writing is too slow.
//
// A line contains no text copied from the request. It identifies the token by its ID, and the
// vehicle by a hash whose seed is random for each process.
type AccessLog struct {
	config AccessLogConfig
	seed   maphash.Seed
	queue  chan record
	lost   prometheus.Counter

	reopen  atomic.Bool
	file    *os.File
	to      io.Writer
	lines   []byte
	torn    bool
	broken  bool
	stop    context.CancelFunc
	running sync.WaitGroup
}

// The queue holds the records of one logEvery at 300,000 requests per second.
const (
	logEvery  = 50 * time.Millisecond
	queueSize = 1 << 14
	writeSize = 64 << 10
)

func OpenAccessLog(c AccessLogConfig) (*AccessLog, error) {
	a := &AccessLog{
		config: c, seed: maphash.MakeSeed(), queue: make(chan record, queueSize), to: c.Out,
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carstate_access_log_lines_dropped_total",
			Help: "Requests missing from the access log because it could not be written fast enough.",
		}),
	}
	if c.File != "" {
		var err error
		if a.file, err = openLog(c.File); err != nil {
			return nil, err
		}
		a.to = a.file
	}
	c.Registry.MustRegister(a.lost)
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.running.Go(func() { a.run(ctx) })
	return a, nil
}

// openLog refuses a symbolic link to a file. Its error does not contain the name.
func openLog(name string) (*os.File, error) {
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE
	if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() { // /dev/stdout is a link
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the access log for writing: %w", access.WithoutPath(err))
	}
	return f, nil
}

// Close writes the remaining records. It must be called after the last answer.
func (a *AccessLog) Close() error {
	a.stop()
	a.running.Wait()
	if a.file != nil {
		return a.file.Close()
	}
	return nil
}

// Reopen opens File by name again, as after a rotation.
func (a *AccessLog) Reopen() { a.reopen.Store(true) }

func (a *AccessLog) run(ctx context.Context) {
	for range periodic.Every(ctx, logEvery) {
		a.drain()
		if a.reopen.Swap(false) {
			a.openAgain()
		}
	}
	a.drain()
}

func (a *AccessLog) openAgain() {
	f, err := openLog(a.config.File)
	if err != nil {
		a.config.Log.Warn("cannot reopen the access log; still writing to the old file: "+
			"fix this and send SIGHUP again", "error", err)
		return
	}
	_ = a.file.Close()
	a.file, a.to, a.torn = f, f, false
	a.config.Log.Info("reopened the access log")
}

func (a *AccessLog) drain() {
	for len(a.queue) > 0 { // only this goroutine receives
		r := <-a.queue
		a.format(&r)
		if len(a.lines) >= writeSize || len(a.queue) == 0 {
			a.write()
		}
	}
}

func (a *AccessLog) write() {
	var n int
	var err error
	if a.torn { // a full disk cut the last line short
		_, err = a.to.Write([]byte{'\n'})
	}
	if err == nil {
		n, err = a.to.Write(a.lines)
		a.torn = n > 0 && a.lines[n-1] != '\n'
	}
	if err != nil {
		a.lost.Add(float64(bytes.Count(a.lines[n:], []byte{'\n'})))
	}
	a.lines = a.lines[:0]
	if err != nil && !a.broken {
		a.config.Log.Warn("cannot write the access log; dropping lines", "error", err)
	} else if err == nil && a.broken {
		a.config.Log.Info("writing the access log again")
	}
	a.broken = err != nil
}

type record struct {
	result
	at      time.Time
	took    time.Duration
	from    netip.Addr
	vehicle uint64 // a hash
	hasVid  bool
	method  string // GET, HEAD or other
	status  int
}

func (a *AccessLog) logAnswer(r *http1.Request, w *response, from netip.Addr, at time.Time, took time.Duration) {
	e := record{
		result: w.result, at: at, took: took, from: from,
		hasVid: len(w.vid) > 0, method: "other", status: w.Status,
	}
	switch string(r.Method) {
	case "GET":
		e.method = "GET"
	case "HEAD":
		e.method = "HEAD"
	}
	if e.hasVid {
		e.vehicle = maphash.Bytes(a.seed, w.vid)
	}
	select {
	case a.queue <- e:
	default:
		a.lost.Inc()
	}
}

func (a *AccessLog) format(r *record) {
	f := fields{b: a.lines, start: len(a.lines), json: a.config.JSON}
	if f.json {
		f.b = append(f.b, '{')
	}
	var buf [64]byte
	f.text("time", r.at.UTC().AppendFormat(buf[:0], "2006-01-02T15:04:05.000Z"))
	f.text("request_id", r.id.appendTo(buf[:0]))
	if r.from.IsValid() {
		f.text("from", r.from.AppendTo(buf[:0]))
	}
	f.text("method", []byte(r.method))
	f.text("operation", []byte(operationNames[r.operation]))
	f.number("status", int64(r.status))
	f.text("outcome", []byte(r.outcome.String()))
	f.number("duration_us", r.took.Microseconds())
	if r.token != "" {
		f.text("token", []byte(r.token))
	}
	if r.hasVid {
		f.text("vehicle", appendHex(buf[:0], r.vehicle))
	}
	if f.json {
		f.b = append(f.b, '}')
	}
	a.lines = append(f.b, '\n')
}

type fields struct {
	b     []byte
	start int // where the line begins; JSON has a brace there
	json  bool
}

func (f *fields) number(name string, value int64) {
	var buf [20]byte
	f.add(name, strconv.AppendInt(buf[:0], value, 10), "")
}

func (f *fields) text(name string, value []byte) { f.add(name, value, `"`) }

func (f *fields) add(name string, value []byte, quote string) {
	before, after, separator := `"`, `":`, byte(',')
	if !f.json {
		before, after, separator, quote = "", "=", ' ', ""
	}
	if len(f.b) > f.start+1 {
		f.b = append(f.b, separator)
	}
	for _, part := range [...]string{before, name, after, quote} {
		f.b = append(f.b, part...)
	}
	f.b = append(append(f.b, value...), quote...)
}
