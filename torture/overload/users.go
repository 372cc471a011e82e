package overload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/load"
	"example.org/carstate/torture/row"
)

// If all of maxUsers wait, newcomers send further requests.
const (
	patience = time.Second
	maxUsers = 2000
)

type users struct {
	addr    string
	request func(i int) string
	good    func(status int, body string) bool
	all     sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	idle      []*user    // connected; the most recently used is last
	absent    []*user    // free and not connected
	users     int
	newcomers chan<- time.Time
	sent      int
	now       result

	begun    time.Time
	rate     float64 // 0: there is no open loop
	arrivals int

	from, until time.Time // requests due between these times are counted

	acknowledged func(i int)
}

type result struct {
	due     int
	unsent  int
	good    int
	refused int // 503, with Retry-After
	failed  int // no answer, or too late
	wrong   error
	all     []outcome
	during  time.Duration
}

func (r result) sent() int { return r.due - r.unsent }

func (r result) rate() float64 { return float64(r.good) / r.during.Seconds() }

func (r result) offers() float64 { return float64(r.sent()) / r.during.Seconds() }

func (r result) p(q float64) time.Duration {
	var took []time.Duration
	for _, o := range r.all {
		if o.good {
			took = append(took, o.took)
		}
	}
	return report.Quantile(took, q)
}

type outcome struct {
	due  time.Time
	good bool
	took time.Duration
}

type user struct {
	group *users
	conn  row.Conn
}

func (c *users) user(conn net.Conn) *user { return &user{c, row.Conn{To: c.addr, Open: conn}} }

func (c *users) openLoop(ctx context.Context, rate float64, before, during time.Duration) result {
	begin, to := time.Now(), netip.MustParseAddrPort(c.addr)
	c.from, c.until, c.now = begin.Add(before), begin.Add(before+during), result{during: during}
	due := make(chan time.Time, behind)
	c.begun, c.rate, c.arrivals, c.newcomers = begin, rate, 0, due
	var dialing sync.WaitGroup
	for range dialers {
		dialing.Go(func() {
			for due := range due {
				conn, err := tryOnce(to)
				c.newcomerDone(due, conn, err)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for now := begin; ctx.Err() == nil && now.Before(c.until); now = <-tick.C {
		c.mu.Lock()
		c.arrive(now)
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.rate = 0
	c.mu.Unlock()
	close(due)
	dialing.Wait()
	c.all.Wait()
	for _, u := range c.idle {
		u.conn.Close()
	}
	c.users, c.idle, c.absent = 0, nil, nil
	return c.now
}

// over is called at the end of the counted time, under load.
func (c *users) closedLoop(ctx context.Context, users int, before, during time.Duration, over func()) result {
	begin := time.Now().Add(before)
	c.from, c.until, c.now = begin, begin.Add(during), result{during: during}
	stop := row.Background(ctx, users, func(ctx context.Context, _ int) {
		u := c.user(nil)
		for ctx.Err() == nil {
			u.serve(time.Now())
		}
		u.conn.Close()
	})
	row.Pause(ctx, before+during)
	over()
	stop()
	return c.now
}

// c.mu is held.
func (c *users) counts(due time.Time) bool { return !due.Before(c.from) && due.Before(c.until) }

// c.mu is held.
func (c *users) arrive(now time.Time) {
	for ; c.rate > 0; c.arrivals++ {
		due := c.begun.Add(time.Duration(float64(c.arrivals) / c.rate * float64(time.Second)))
		if due.After(now) || !due.Before(c.until) {
			return
		}
		c.give(due)
	}
}

// c.mu is held.
func (c *users) give(due time.Time) {
	if c.counts(due) {
		c.now.due++
	}
	for _, free := range []*[]*user{&c.idle, &c.absent} {
		if n := len(*free); n > 0 {
			u := (*free)[n-1]
			*free = (*free)[:n-1]
			c.all.Go(func() { u.call(due) })
			return
		}
	}
	if c.users < maxUsers {
		c.add(c.user(nil), due)
		return
	}
	select {
	case c.newcomers <- due:
	default:
		if c.counts(due) {
			c.now.unsent++
		}
	}
}

// c.mu is held.
func (c *users) add(u *user, due time.Time) {
	c.users++
	c.all.Go(func() { u.call(due) })
}

func (u *user) call(due time.Time) {
	u.serve(due)
	c := u.group
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrive(time.Now()) // calls that have become due would otherwise be sent in bursts
	if u.conn.Open != nil {
		c.idle = append(c.idle, u)
	} else {
		c.absent = append(c.absent, u)
	}
}

func (u *user) serve(due time.Time) {
	c := u.group
	c.mu.Lock()
	n := c.sent
	c.sent++
	c.mu.Unlock()
	u.conn.Limit = time.Until(due.Add(patience))
	answer, body, err := u.conn.Ask(context.Background(), c.request(n))
	took := time.Since(due)
	if err == nil && answer.ContentLength < 0 {
		err = errors.New("an answer has no length")
	}
	good := err == nil && c.good(answer.StatusCode, body)
	if good && c.acknowledged != nil {
		c.acknowledged(n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.counts(due) {
		return
	}
	r := &c.now
	r.all = append(r.all, outcome{due, good && took <= patience, took})
	switch {
	case err != nil || took > patience:
		r.failed++
	case good:
		r.good++
	case answer.Header.Get("Retry-After") != "" && answer.StatusCode == http.StatusServiceUnavailable:
		r.refused++
	case answer.Header.Get("Retry-After") != "" && answer.StatusCode == http.StatusTooManyRequests &&
		c.acknowledged != nil: // folding is behind
	case r.wrong == nil:
		r.wrong = fmt.Errorf("a request was answered with %d", answer.StatusCode)
	}
}

// Newcomers try once to connect. The kernel would try again after a second, when patience has ended.

const maxConnected = 3 * maxUsers

// If more wait, this machine cannot send at the rate.
const (
	dialers = 2
	behind  = 1024
)

// Without a connection, the kernel has dropped the request, or (err) this machine has not sent it.
func (c *users) newcomerDone(due time.Time, conn net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn != nil && c.users < maxConnected {
		c.add(c.user(conn), due)
		return
	}
	if conn != nil {
		_ = conn.Close()
	}
	if c.counts(due) && (err != nil || conn != nil) {
		c.now.unsent++
	}
}

func tryOnce(to netip.AddrPort) (net.Conn, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	state := 0
	if err == nil || errors.Is(err, syscall.EINPROGRESS) {
		// Over loopback, the kernel's answer arrives before Connect returns, or never.
		state, err = syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
	} else if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = nil // refused
	}
	const established = 1 // the first byte of TCP_INFO
	if err != nil || state&0xff != established {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	return net.FileConn(f)
}

// After drives samples a car is replaced, so that later samples cannot hide a lost one.
type fleet struct {
	load  *load.Load
	begin int64 // of each car's time, Unix s
}

const drives = 1000

func (f *fleet) sample(number int) (vid string, at int64) {
	place, turn := number%cars, number/cars
	turn += place * drives / cars
	return fmt.Sprintf("Car%dx%d", place, turn/drives), f.begin + int64(turn%drives)
}

func (f *fleet) body(request int) string {
	var b []byte
	for i := range batch {
		vid, at := f.sample(request*batch + i)
		f.load.NoteOffered(vid, at)
		b = line(b, vid, at*1000)
	}
	return string(b)
}

func (f *fleet) acknowledged(request int) {
	for i := range batch {
		f.load.NoteAcknowledged(f.sample(request*batch + i))
	}
}

// Ten, because not every kill happens between an acknowledgement and the storage.
const kills = 10

func (f *fleet) cut(ctx context.Context, n *node) {
	users := closedUsers[len(closedUsers)-1]
	for range kills {
		n.check(n.what+": ", n.users.closedLoop(ctx, users, time.Second, time.Second/10, n.process.Kill))
		must.Do(ctx.Err())
		process := must.Get(f.load.Start(ctx, n.options))
		n.process, n.users.addr = process, process.Address(nodeprocess.Ingest)
		f.load.HoldVehicles(ctx, process, f.load.Vehicles())
		n.confine()
	}
	n.a.Figure(n.what+": kills", kills, "")
	n.a.Figure(n.what+": cars whose newest acknowledged sample was looked for each time", float64(len(f.load.Vehicles())),
		"")
}

const cars = 100

func line(b []byte, vid string, unixMilli int64) []byte {
	return fmt.Appendf(b, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":70,"Vehicle.OBD.EngineSpeed":2000}}`+"\n", vid,
		unixMilli)
}

func queries(ctx context.Context, n *nodeprocess.Node) *users {
	key := must.Get(n.AddSource(ctx, "gateway"))
	token := must.Get(n.IssueToken(ctx, "Ada"))
	var lines []byte
	for i := range cars {
		lines = line(lines, "Car"+strconv.Itoa(i), time.Now().UnixMilli())
	}
	row.Feed(ctx, n, key, string(lines))
	must.Do(n.AwaitAnswer(ctx, time.Minute, token.AccessToken, "Car"+strconv.Itoa(cars-1), time.Time{}))
	return &users{
		addr: n.Address(nodeprocess.Query),
		request: func(i int) string {
			return row.Question(nodeprocess.DrivingPath, token.AccessToken, "Car"+strconv.Itoa(i%cars))
		},
		good: func(status int, body string) bool {
			return status == http.StatusOK && strings.HasSuffix(body, `"status":1,"vehicle_runing_state":"1"}}`)
		},
	}
}

const batch = 5

func (f *fleet) prepare(ctx context.Context, n *nodeprocess.Node) *users {
	key, _ := f.load.Prepare(ctx, n)
	return &users{
		addr: n.Address(nodeprocess.Ingest),
		request: func(i int) string {
			body := f.body(i)
			return row.Upload(key, row.NDJSON, len(body)) + body
		},
		good: func(status int, body string) bool {
			return status == http.StatusAccepted && strings.HasPrefix(body, `{"accepted":`+strconv.Itoa(batch)+`,`)
		},
		acknowledged: f.acknowledged,
	}
}
