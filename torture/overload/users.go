package overload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"carstate/torture/row"
)

// The patience of users of a listener, and how many there are. Each has one
// connection at most. Where none is free, what was to be sent is not: that is what
// a browser, a proxy or a pool of connections does too.
const (
	patience = time.Second
	maxUsers = 2000
)

// crowd is users of one listener.
type crowd struct {
	addr    string // an IPv4 address and a port
	request func(b []byte, i int) []byte
	good    func(status int, body []byte) bool
	light   bool // so few that each one's fate is kept

	all sync.WaitGroup

	mu      sync.Mutex // guards what follows
	idle    []*user    // free and connected; the one that was used last comes first
	absent  []*user    // free and not connected
	users   []*user
	passing chan<- time.Time // what passers-by are to send, while there are any
	sent    int
	now     result

	schedule schedule // of an open loop

	// In an open loop counts what is due from then on; in a closed one, what is
	// answered from then until. The zero time is never.
	open        bool
	from, until time.Time
	// counting, where it is set, is called as that begins and as it ends.
	counting func()

	// acknowledged, where it is set, is told the number of each request that has had
	// a good answer.
	acknowledged func(i int)
}

// result is what became of requests.
type result struct {
	due       int
	unsent    int // for want of time of whoever should send it
	away      int // of passers-by, whom the kernel did not let in
	connected int // on a connection made for it
	good      int // answered within patience
	refused   int // 503, with the time to come back at
	failed    int // not connected, not answered, or too late
	wrong     error
	took      []time.Duration // of the good ones, from when each was due
	all       []fate          // of those that a light load asks
}

// sent is how many were offered: sent, or tried to be.
func (r *result) sent() int { return r.due - r.unsent }

func (r *result) p(q float64) time.Duration { return row.Percentile(r.took, q) }

// add counts what became of others too. Fates are not added.
func (r *result) add(o result) {
	r.due += o.due
	r.unsent += o.unsent
	r.away += o.away
	r.connected += o.connected
	r.good += o.good
	r.refused += o.refused
	r.failed += o.failed
	r.took = append(r.took, o.took...)
}

// fate is what became of one request.
type fate struct {
	due  time.Time
	good bool
	took time.Duration
}

// user is one connection, or none yet.
type user struct {
	of    *crowd
	due   chan time.Time
	conn  net.Conn
	fresh bool // conn was given to him and he has not used it yet
	in    *bufio.Reader
	out   []byte
}

// openLoop has requests sent at that rate, whatever becomes of them, and returns
// what became of those that were due after the first part of the time.
func (c *crowd) openLoop(ctx context.Context, rate float64, before, during time.Duration) result {
	begin := time.Now()
	c.count(true, begin.Add(before), time.Time{})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	counts := false
	nobody := c.passBy()
	c.mu.Lock()
	c.schedule = schedule{begin: begin, end: begin.Add(before + during), rate: rate}
	c.mu.Unlock()
	for now := begin; ctx.Err() == nil && now.Sub(begin) < before+during; now = <-tick.C {
		if !counts && now.Sub(begin) >= before {
			counts = true
			c.counting()
		}
		c.mu.Lock()
		c.arrive(now)
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.schedule = schedule{}
	c.mu.Unlock()
	nobody()
	c.counting()
	// Those under way may still be answered.
	c.await(ctx, time.Now().Add(2*patience))
	return c.take()
}

// closedLoop lets so many users send one request after the other, and returns what
// was answered in a time that begins a while after they came. What is under way at
// its end is not of this time.
func (c *crowd) closedLoop(ctx context.Context, users int, before, during time.Duration) result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.count(false, time.Time{}, time.Time{})
	var all sync.WaitGroup
	for range users {
		all.Go(func() {
			u := &user{of: c}
			for ctx.Err() == nil {
				u.serve(time.Now())
			}
			u.hangUp()
		})
	}
	row.Pause(ctx, before)
	begin := time.Now()
	c.count(false, begin, begin.Add(during))
	c.counting()
	row.Pause(ctx, during)
	c.counting()
	cancel()
	all.Wait()
	return c.take()
}

// count begins a new count.
func (c *crowd) count(open bool, from, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.from, c.until, c.now = open, from, until, result{}
	if c.counting == nil {
		c.counting = func() {}
	}
}

func (c *crowd) take() result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.now
	c.now = result{}
	return r
}

// note counts something about a request that was due and ended then.
func (c *crowd) note(due, ended time.Time, f func(*result)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open && !due.Before(c.from):
		f(&c.now)
	case !c.open && !ended.Before(c.from) && ended.Before(c.until):
		c.now.due++
		f(&c.now)
	}
}

// schedule is when requests are due: so many a second from the beginning to the end.
type schedule struct {
	begin, end time.Time
	rate       float64
	sent       int
}

// arrive gives the requests that are due until now to users who are free. mu is held.
func (c *crowd) arrive(now time.Time) {
	for s := &c.schedule; s.rate > 0; s.sent++ { // 0: there is no loop
		due := s.begin.Add(time.Duration(float64(s.sent) / s.rate * float64(time.Second)))
		if due.After(now) || !due.Before(s.end) {
			return
		}
		c.give(due)
	}
}

// give gives a request that is due to a user who is free. mu is held.
func (c *crowd) give(due time.Time) {
	counts := !due.Before(c.from)
	if counts {
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
		c.employ(&user{of: c}, due)
		return
	}
	select {
	case c.passing <- due:
	default:
		if counts {
			c.now.unsent++
		}
	}
}

// employ gives a new user his first request. mu is held.
func (c *crowd) employ(u *user, due time.Time) {
	u.due = make(chan time.Time, 1)
	c.users = append(c.users, u)
	u.due <- due
	c.all.Go(func() {
		for due := range u.due {
			u.serve(due)
			c.release(u)
		}
		u.hangUp()
	})
}

// release takes back a user who is free. Requests that have become due meanwhile come
// first: otherwise all would come in lumps, with the ticks of a timer.
func (c *crowd) release(u *user) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrive(time.Now())
	if u.conn != nil {
		c.idle = append(c.idle, u)
	} else {
		c.absent = append(c.absent, u)
	}
}

// await waits until every user is free.
func (c *crowd) await(ctx context.Context, until time.Time) {
	for ctx.Err() == nil && time.Now().Before(until) {
		c.mu.Lock()
		busy := len(c.users) - len(c.idle) - len(c.absent)
		c.mu.Unlock()
		if busy == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// leave ends all users.
func (c *crowd) leave() {
	c.mu.Lock()
	for _, u := range c.users {
		close(u.due)
	}
	c.users, c.idle, c.absent = nil, nil, nil
	c.mu.Unlock()
	c.all.Wait()
}

// connections is how many users there are.
func (c *crowd) connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.users)
}

// use makes a connection the user's.
func (u *user) use(conn net.Conn) {
	u.conn = conn
	if u.in == nil {
		u.in = bufio.NewReaderSize(nil, 2<<10)
	}
	u.in.Reset(conn)
}

func (u *user) hangUp() {
	if u.conn != nil {
		_ = u.conn.Close()
		u.conn = nil
	}
}

// serve sends a request and counts what becomes of it. A user whose patience ends
// hangs up.
func (u *user) serve(due time.Time) {
	had := u.conn != nil && !u.fresh
	status, again, err := u.ask(due)
	connected := !had && u.conn != nil
	u.fresh = false
	ended := time.Now()
	took := ended.Sub(due)
	if err != nil || !again {
		u.hangUp()
	}
	u.of.note(due, ended, func(r *result) {
		if u.of.light {
			r.all = append(r.all, fate{due, status == 200 && err == nil && took <= patience, took})
		}
		if connected {
			r.connected++
		}
		switch {
		case err != nil || took > patience:
			r.failed++
		case status == 200:
			r.good++
			r.took = append(r.took, took)
		case status == 503:
			r.refused++
		case r.wrong == nil:
			r.wrong = fmt.Errorf("a request was answered with %d", status)
		}
	})
}

// ask sends a request and reads the answer. The status is 200 for a good one. It
// reports whether the connection may be used again.
func (u *user) ask(due time.Time) (status int, again bool, err error) {
	deadline := due.Add(patience)
	if u.conn == nil {
		conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", u.of.addr)
		if err != nil {
			return 0, false, err
		}
		u.use(conn)
	}
	if err := u.conn.SetDeadline(deadline); err != nil {
		return 0, false, err
	}
	u.of.mu.Lock()
	n := u.of.sent
	u.of.sent++
	u.of.mu.Unlock()
	u.out = u.of.request(u.out[:0], n)
	_, wrote := u.conn.Write(u.out) // a refusal may have come before
	resp, err := http.ReadResponse(u.in, nil)
	if err != nil {
		return 0, false, errors.Join(err, wrote)
	}
	body, err := io.ReadAll(resp.Body)
	status, again = resp.StatusCode, !resp.Close
	switch {
	case err != nil || resp.ContentLength < 0:
		return 0, false, errors.Join(errors.New("an answer has no length, or breaks off"), err)
	case status == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		return status, again, nil
	case !u.of.good(status, body): // or it does not say when to come back
		return -status, again, nil
	}
	if u.of.acknowledged != nil {
		u.of.acknowledged(n)
	}
	return http.StatusOK, again, nil
}

// Passers-by send what is due while all users wait, so that as much is offered as is
// due. Each tries once to connect. Who is let in is a user from then on. Who is not
// has been turned away by the kernel, which keeps nothing of him and would hear from
// him again after a second, when his patience is at its end.

// maxConnected is how many users there are at most with those who were let in.
const maxConnected = 3 * maxUsers

// Passers-by come one after the other, from so many goroutines. Where more than
// behind of them are due, the machine cannot send what the row wants it to.
const (
	streets = 2
	behind  = 1024
)

// passBy has passers-by come. What it returns ends that.
func (c *crowd) passBy() (stop func()) {
	to := netip.MustParseAddrPort(c.addr)
	due := make(chan time.Time, behind)
	c.mu.Lock()
	c.passing = due
	c.mu.Unlock()
	var all sync.WaitGroup
	for range streets {
		all.Go(func() {
			for due := range due {
				conn, err := tryOnce(to)
				c.passed(due, conn, err)
			}
		})
	}
	return func() {
		c.mu.Lock()
		c.passing = nil
		c.mu.Unlock()
		close(due)
		all.Wait()
	}
}

// passed is told what became of a passer-by.
func (c *crowd) passed(due time.Time, conn net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := !due.Before(c.from)
	switch {
	case conn != nil && len(c.users) < maxConnected:
		u := &user{of: c, fresh: true}
		u.use(conn)
		c.employ(u, due)
		return
	case conn != nil:
		_ = conn.Close()
	}
	switch {
	case !counts:
	case err != nil || conn != nil:
		c.now.unsent++
	default:
		c.now.away++
	}
}

// tryOnce connects, or returns nil if that does not succeed at once. An error says
// that it was not tried.
func tryOnce(to netip.AddrPort) (net.Conn, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	state := 0
	if err == nil || errors.Is(err, syscall.EINPROGRESS) {
		// Over the loopback interface the answer has come by now if one comes at all.
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
