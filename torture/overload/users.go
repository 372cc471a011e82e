package overload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
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
	request func(b []byte, i int) []byte
	good    func(status int, body []byte) bool
	all     sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	idle      []*user    // connected; the most recently used is last
	absent    []*user    // free and not connected
	users     []*user
	newcomers chan<- time.Time
	sent      int
	now       result

	schedule schedule

	from, until time.Time // requests due between these times are counted
	// Called at the beginning and at the end of the counted time.
	counting func()

	acknowledged func(i int)
}

type result struct {
	due       int
	unsent    int
	dropped   int // the kernel did not let it connect
	connected int
	good      int
	refused   int // with Retry-After
	behind    int // 429, because folding is behind
	failed    int // no answer, or too late
	wrong     error
	all       []outcome
	users     int
}

func (r *result) sent() int { return r.due - r.unsent }

func (r *result) p(q float64) time.Duration {
	var took []time.Duration
	for _, o := range r.all {
		if o.good {
			took = append(took, o.took)
		}
	}
	return row.Percentile(took, q)
}

type outcome struct {
	due  time.Time
	good bool
	took time.Duration
}

type user struct {
	group *users
	due   chan time.Time
	conn  net.Conn
	fresh bool
	in    *bufio.Reader
	out   []byte
}

func (c *users) openLoop(ctx context.Context, rate float64, before, during time.Duration) result {
	begin, to := time.Now(), netip.MustParseAddrPort(c.addr)
	c.begin(begin.Add(before), begin.Add(before+during))
	due := make(chan time.Time, behind)
	c.schedule, c.newcomers = schedule{begin: begin, rate: rate}, due
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
	counts := false
	for now := begin; ctx.Err() == nil && now.Before(c.until); now = <-tick.C {
		if !counts && now.Sub(begin) >= before {
			counts = true
			c.counting()
		}
		c.mu.Lock()
		c.arrive(now)
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.schedule, c.newcomers = schedule{}, nil
	c.mu.Unlock()
	close(due)
	dialing.Wait()
	c.counting()
	for _, u := range c.users {
		close(u.due)
	}
	c.all.Wait()
	c.now.users = len(c.users)
	c.users, c.idle, c.absent = nil, nil, nil
	return c.now
}

func (c *users) closedLoop(ctx context.Context, users int, before, during time.Duration) result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now().Add(before)
	c.begin(begin, begin.Add(during))
	var all sync.WaitGroup
	for range users {
		all.Go(func() {
			u := &user{group: c}
			for ctx.Err() == nil {
				u.serve(time.Now())
			}
			u.disconnect()
		})
	}
	row.Pause(ctx, before)
	c.counting()
	row.Pause(ctx, during)
	c.counting()
	cancel()
	all.Wait()
	return c.now
}

func (c *users) begin(from, until time.Time) {
	c.from, c.until, c.now = from, until, result{}
	if c.counting == nil {
		c.counting = func() {}
	}
}

// c.mu is held.
func (c *users) counts(due time.Time) bool { return !due.Before(c.from) && due.Before(c.until) }

type schedule struct {
	begin time.Time
	rate  float64
	sent  int
}

// c.mu is held.
func (c *users) arrive(now time.Time) {
	for s := &c.schedule; s.rate > 0; s.sent++ { // rate is 0 if there is no loop
		due := s.begin.Add(time.Duration(float64(s.sent) / s.rate * float64(time.Second)))
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
			(*free)[n-1].due <- due
			*free = (*free)[:n-1]
			return
		}
	}
	if len(c.users) < maxUsers {
		c.assign(&user{group: c}, due)
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
func (c *users) assign(u *user, due time.Time) {
	u.due = make(chan time.Time, 1)
	c.users = append(c.users, u)
	u.due <- due
	c.all.Go(func() {
		for due := range u.due {
			u.serve(due)
			c.release(u)
		}
		u.disconnect()
	})
}

// Calls that have become due would otherwise be sent in bursts.
func (c *users) release(u *user) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrive(time.Now())
	if u.conn != nil {
		c.idle = append(c.idle, u)
	} else {
		c.absent = append(c.absent, u)
	}
}

func (u *user) use(conn net.Conn) {
	u.conn = conn
	if u.in == nil {
		u.in = bufio.NewReaderSize(nil, 2<<10)
	}
	u.in.Reset(conn)
}

func (u *user) disconnect() {
	if u.conn != nil {
		_ = u.conn.Close()
		u.conn = nil
	}
}

func (u *user) serve(due time.Time) {
	had := u.conn != nil && !u.fresh
	status, again, err := u.ask(due)
	connected := !had && u.conn != nil
	u.fresh = false
	took := time.Since(due)
	if err != nil || !again {
		u.disconnect()
	}
	u.group.mu.Lock()
	defer u.group.mu.Unlock()
	if !u.group.counts(due) {
		return
	}
	r := &u.group.now
	r.all = append(r.all, outcome{due, status == 200 && err == nil && took <= patience, took})
	if connected {
		r.connected++
	}
	switch {
	case err != nil || took > patience:
		r.failed++
	case status == 200:
		r.good++
	case status == 503:
		r.refused++
	case status == 429 && u.group.acknowledged != nil:
		r.behind++
	case r.wrong == nil:
		r.wrong = fmt.Errorf("a request was answered with %d", status)
	}
}

// The status is 200 if the answer is correct, 503 or 429 if it is a refusal with Retry-After, and
// else negative.
func (u *user) ask(due time.Time) (status int, again bool, err error) {
	deadline := due.Add(patience)
	if u.conn == nil {
		conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", u.group.addr)
		if err != nil {
			return 0, false, err
		}
		u.use(conn)
	}
	if err := u.conn.SetDeadline(deadline); err != nil {
		return 0, false, err
	}
	u.group.mu.Lock()
	n := u.group.sent
	u.group.sent++
	u.group.mu.Unlock()
	u.out = u.group.request(u.out[:0], n)
	_, wrote := u.conn.Write(u.out)
	resp, err := http.ReadResponse(u.in, nil)
	if err != nil {
		return 0, false, errors.Join(err, wrote)
	}
	body, err := io.ReadAll(resp.Body)
	status, again = resp.StatusCode, !resp.Close
	switch {
	case err != nil || resp.ContentLength < 0:
		return 0, false, errors.Join(errors.New("an answer has no length, or is cut off"), err)
	case (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && resp.Header.Get("Retry-After") != "":
		return status, again, nil
	case !u.group.good(status, body): // or Retry-After is missing
		return -status, again, nil
	}
	if u.group.acknowledged != nil {
		u.group.acknowledged(n)
	}
	return http.StatusOK, again, nil
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
	if conn != nil && len(c.users) < maxConnected {
		u := &user{group: c, fresh: true}
		u.use(conn)
		c.assign(u, due)
		return
	}
	if conn != nil {
		_ = conn.Close()
	}
	if c.counts(due) && (err != nil || conn != nil) {
		c.now.unsent++
	} else if c.counts(due) {
		c.now.dropped++
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
	taken atomic.Int64
}

const drives = 1000

func newFleet(a *row.Attempt) *fleet {
	return &fleet{load: load.New(a), begin: time.Now().Add(-time.Hour).Unix()}
}

func (f *fleet) sample(number int) (vid string, at int64) {
	place, turn := number%cars, number/cars
	turn += place * drives / cars
	return fmt.Sprintf("Car%dx%d", place, turn/drives), f.begin + int64(turn%drives)
}

func (f *fleet) body(request int) (b []byte) {
	for i := range batch {
		vid, at := f.sample(request*batch + i)
		f.load.NoteOffered(vid, at)
		b = line(b, vid, at*1000)
	}
	return b
}

func (f *fleet) acknowledged(request int) {
	f.taken.Add(1)
	for i := range batch {
		f.load.NoteAcknowledged(f.sample(request*batch + i))
	}
}

func (f *fleet) prepare(ctx context.Context, n *nodeprocess.Node) *users {
	f.load.Prepare(ctx, n)
	return telemetry(ctx, n, f)
}

// Ten, because not every kill happens between an acknowledgement and the storage.
const kills = 10

const amid = time.Second

func (f *fleet) cut(ctx context.Context, n *node) {
	users := closedUsers[len(closedUsers)-1]
	for range kills {
		counts := false
		n.users.counting = func() {
			if counts {
				n.process.Kill()
			}
			counts = true
		}
		n.check(n.what+": ", n.users.closedLoop(ctx, users, amid, amid/10))
		must.Do(ctx.Err())
		process := must.Get(f.load.Start(ctx, n.options))
		n.process, n.users.addr = process, process.Address(nodeprocess.Ingest)
		f.load.HoldVehicles(ctx, process, f.load.Vehicles())
		n.confine()
	}
	n.a.Figure(n.what+": kills", kills, "")
	n.a.Figure(n.what+": requests of telemetry that were acknowledged", float64(f.taken.Load()), "")
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
		request: func(b []byte, i int) []byte {
			return append(b, row.Question(nodeprocess.DrivingPath, token.AccessToken, "Car"+strconv.Itoa(i%cars))...)
		},
		good: func(status int, body []byte) bool {
			return status == http.StatusOK && bytes.HasSuffix(body, []byte(`"status":1,"vehicle_runing_state":"1"}}`))
		},
	}
}

const batch = 5

func telemetry(ctx context.Context, n *nodeprocess.Node, f *fleet) *users {
	key := must.Get(n.AddSource(ctx, "gateway"))
	return &users{
		addr: n.Address(nodeprocess.Ingest),
		request: func(b []byte, i int) []byte {
			body := f.body(i)
			return append(append(b, row.Upload(key, row.NDJSON, len(body))...), body...)
		},
		good: func(status int, body []byte) bool {
			return status == http.StatusAccepted && bytes.HasPrefix(body, []byte(`{"accepted":`+strconv.Itoa(batch)+`,`))
		},
		acknowledged: f.acknowledged,
	}
}
