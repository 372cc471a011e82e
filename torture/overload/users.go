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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/torture/load"
	"example.org/carstate/torture/row"
)

// patience is how long a user waits for an answer. maxUsers is the maximum number of users. If all
// of them wait, further requests are sent by newcomers (see dialers).
const (
	patience = time.Second
	maxUsers = 2000
)

// users simulates the users of one listener.
type users struct {
	addr    string // an IPv4 address and a port
	request func(b []byte, i int) []byte
	good    func(status int, body []byte) bool
	all     sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	idle      []*user    // free and connected; the most recently used is last
	absent    []*user    // free and not connected
	users     []*user
	newcomers chan<- time.Time // due times of requests for newcomers; nil: there are none
	sent      int
	now       result

	schedule schedule // of an open loop

	from, until time.Time // requests that are due between these times are counted
	// counting is called when the counted time begins and ends.
	counting func()

	// acknowledged, if not nil, is called with the number of each request with a good answer.
	acknowledged func(i int)
}

// result counts the outcomes of requests.
type result struct {
	due       int
	unsent    int // no sender was free in time
	dropped   int // requests of newcomers that the kernel did not let connect
	connected int // sent over a new connection
	good      int // answered within patience
	refused   int // 503 with Retry-After
	behind    int // telemetry: 429 with Retry-After, because folding is behind
	failed    int // not connected, not answered, or too late
	wrong     error
	all       []outcome
	users     int // at the end of an open loop
}

// sent returns the number of requests that were sent or tried.
func (r *result) sent() int { return r.due - r.unsent }

// p returns the quantile q, from 0 to 1, of the time that good answers took, from when each request
// was due. If there were no good answers, it returns 0.
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

// user is a user with one connection or none.
type user struct {
	group *users
	due   chan time.Time
	conn  net.Conn
	fresh bool // conn is new and has not been used
	in    *bufio.Reader
	out   []byte
}

// openLoop sends requests at a constant rate per second for before+during, regardless of the answers. It
// returns the outcomes of those that were due in the second part, and ends all users.
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
	for _, u := range c.users { // none is added any more
		close(u.due)
	}
	c.all.Wait() // requests in progress may still be answered
	c.now.users = len(c.users)
	c.users, c.idle, c.absent = nil, nil, nil
	return c.now
}

// closedLoop lets users send one request after the other for the time before+during. It returns the
// outcomes of the requests that were sent in the second part, during. Then the users disconnect.
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

// begin starts a new count, of the requests that are due from one time until another.
func (c *users) begin(from, until time.Time) {
	c.from, c.until, c.now = from, until, result{}
	if c.counting == nil {
		c.counting = func() {}
	}
}

// counts reports whether a request is counted. c.mu is held.
func (c *users) counts(due time.Time) bool { return !due.Before(c.from) && due.Before(c.until) }

// schedule defines when requests are due: at a constant rate from begin on.
type schedule struct {
	begin time.Time
	rate  float64
	sent  int
}

// arrive gives the requests that are due now to free users. c.mu is held.
func (c *users) arrive(now time.Time) {
	for s := &c.schedule; s.rate > 0; s.sent++ { // rate is 0 if there is no loop
		due := s.begin.Add(time.Duration(float64(s.sent) / s.rate * float64(time.Second)))
		if due.After(now) || !due.Before(c.until) {
			return
		}
		c.give(due)
	}
}

// give passes one due request to a free user, a new user, or a newcomer. c.mu is held.
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

// assign starts a new user, who sends a request that is due as the first one. c.mu is held.
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

// release makes a user free. First it passes on what has become due, which would otherwise wait for
// the next tick in openLoop and be sent in bursts.
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

// use gives a user a connection.
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

// serve sends a request and counts its outcome. A user who waits too long disconnects.
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

// ask sends the next request and waits until patience after due for the answer. The status is 200 if the
// answer is correct, 503 or 429 if it has Retry-After, and otherwise negative. again reports whether the
// connection can be used again.
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
	_, wrote := u.conn.Write(u.out) // ignored if a refusal was received before
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

// Newcomers send the requests that are due while all users wait. Each tries once to connect, because
// the kernel would try again only after a second, when the newcomer's patience has ended.

// maxConnected is the maximum number of users, including those that were newcomers before.
const maxConnected = 3 * maxUsers

// dialers is the number of goroutines that connect newcomers, and behind the maximum number of
// waiting newcomers. If more should wait, their requests count as unsent.
const (
	dialers = 2
	behind  = 1024
)

// newcomerDone makes a newcomer with a connection a user, who sends the request. If there are
// maxConnected users or if this machine could not connect, the request counts as unsent. If the
// kernel did not accept the connection at once, it counts as dropped.
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

// tryOnce tries to connect. If the connection is not established at once, tryOnce returns a nil
// connection. An error means that this machine could not even try.
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
	const established = 1 // TCP_ESTABLISHED, the first byte of TCP_INFO
	if err != nil || state&0xff != established {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	return net.FileConn(f)
}

// fleet holds the cars whose telemetry overloads a node, and a journal. The number of a request
// determines its samples. After drives samples, one for each second of its own time, a car is
// replaced, so that later samples cannot hide a lost one for long.
type fleet struct {
	load  *load.Load // keeps the journal and compares a node with it
	begin int64      // when each car's time begins, Unix s
	taken atomic.Int64
}

// drives is the number of samples that a car sends before another car replaces it.
const drives = 1000

func newFleet(a *row.Attempt) *fleet {
	return &fleet{load: load.New(a), begin: time.Now().Add(-time.Hour).Unix()}
}

// sample returns the car and the time of the sample with the given number. The number of cars at a
// time is constant, and the cars are replaced one after the other.
func (f *fleet) sample(number int) (vid string, at int64) {
	place, turn := number%cars, number/cars
	turn += place * drives / cars
	return fmt.Sprintf("Car%dx%d", place, turn/drives), f.begin + int64(turn%drives)
}

// body returns the telemetry of a request and records it as offered.
func (f *fleet) body(request int) (b []byte) {
	for i := range batch {
		vid, at := f.sample(request*batch + i)
		f.load.NoteOffered(vid, at)
		b = line(b, vid, at*1000)
	}
	return b
}

// acknowledged records that a request was acknowledged.
func (f *fleet) acknowledged(request int) {
	f.taken.Add(1)
	for i := range batch {
		f.load.NoteAcknowledged(f.sample(request*batch + i))
	}
}

// prepare prepares users that send the telemetry of this fleet.
func (f *fleet) prepare(ctx context.Context, n *nodeprocess.Node) *users {
	f.load.Prepare(ctx, n)
	return telemetry(ctx, n, f)
}

// kills is the number of kills. Several are necessary, because not every kill happens while there
// are samples that were acknowledged but are not stored yet.
const kills = 10

// amid is how long the node is under load before each kill.
const amid = time.Second

// cut kills a node that receives as much telemetry as it can handle, restarts it, and checks that
// it has everything that it had acknowledged, several times.
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

// cars is the number of vehicles.
const cars = 100

// line appends a line of NDJSON with one sample.
func line(b []byte, vid string, unixMilli int64) []byte {
	return fmt.Appendf(b, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":70,"Vehicle.OBD.EngineSpeed":2000}}`+"\n", vid,
		unixMilli)
}

// queries prepares users of the query listener.
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
			b = append(b, "GET "+nodeprocess.DrivingPath+"?access_token="...)
			b = append(b, token.AccessToken...)
			b = strconv.AppendInt(append(b, "&vid=Car"...), int64(i%cars), 10)
			return append(b, " HTTP/1.1\r\nHost: localhost\r\n\r\n"...)
		},
		good: func(status int, body []byte) bool {
			return status == http.StatusOK && bytes.HasSuffix(body, []byte(`"status":1,"vehicle_runing_state":"1"}}`))
		},
	}
}

// batch is the number of samples in a request of telemetry.
const batch = 5

// telemetry prepares users of the ingest listener, which send the telemetry of a fleet.
func telemetry(ctx context.Context, n *nodeprocess.Node, f *fleet) *users {
	key := must.Get(n.AddSource(ctx, "gateway"))
	head := strings.Join([]string{"POST /v1/telemetry HTTP/1.1", "Host: localhost", "Content-Type: application/x-ndjson",
		"Authorization: Bearer " + key, "Content-Length: "}, "\r\n")
	return &users{
		addr: n.Address(nodeprocess.Ingest),
		request: func(b []byte, i int) []byte {
			body := f.body(i)
			b = strconv.AppendInt(append(b, head...), int64(len(body)), 10)
			return append(append(b, "\r\n\r\n"...), body...)
		},
		good: func(status int, body []byte) bool {
			return status == http.StatusAccepted && bytes.HasPrefix(body, []byte(`{"accepted":`+strconv.Itoa(batch)+`,`))
		},
		acknowledged: f.acknowledged,
	}
}
