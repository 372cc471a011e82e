package overload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What the users of a listener put up with, and how many there are. Each has one
// connection at most. Where none is free, what was to be sent is not: that is what
// a browser, a proxy or a pool of connections does too.
const (
	patience = time.Second
	maxUsers = 4000
)

// crowd is users of one listener.
type crowd struct {
	addr    string
	request func(b []byte, i int) []byte
	good    func(status int, body []byte) bool
	light   bool // so few that each one's fate is kept

	all sync.WaitGroup

	mu     sync.Mutex // guards what follows
	idle   []*user    // free and connected; the one that was used last comes first
	absent []*user    // free and not connected
	users  []*user
	sent   int
	from   time.Time // what was due before does not count
	now    result
}

// result is what became of requests.
type result struct {
	offered int // due
	unsent  int // no user was free
	good    int // answered within patience
	refused int // 503, with the time to come back at
	failed  int // not connected, not answered, or too late
	wrong   error
	took    []time.Duration // of the good ones, from when each was due
	all     []fate          // of those that a light load asks
}

func (r *result) p(q float64) time.Duration {
	if len(r.took) == 0 {
		return 0
	}
	slices.Sort(r.took)
	return r.took[min(len(r.took)-1, int(q*float64(len(r.took))))]
}

// fate is what became of one request.
type fate struct {
	due  time.Time
	good bool
	took time.Duration
}

// user is one connection, or none yet.
type user struct {
	of   *crowd
	due  chan time.Time
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// openLoop has requests sent at that rate, whatever becomes of them, and returns
// what became of those that were due after the first part of the time.
func (c *crowd) openLoop(ctx context.Context, rate float64, during, before time.Duration) result {
	begin := time.Now()
	c.reset(begin.Add(before))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for sent := 0; ctx.Err() == nil; {
		now := time.Since(begin)
		if now >= during {
			break
		}
		for ; float64(sent) < rate*now.Seconds(); sent++ {
			c.arrive(begin.Add(time.Duration(float64(sent) / rate * float64(time.Second))))
		}
		<-tick.C
	}
	// Those under way may still be answered.
	c.await(ctx, time.Now().Add(2*patience))
	return c.take()
}

// closedLoop lets so many users send one request after the other.
func (c *crowd) closedLoop(ctx context.Context, users int, during time.Duration) result {
	c.reset(time.Now())
	until := time.Now().Add(during)
	var all sync.WaitGroup
	for range users {
		all.Go(func() {
			u := &user{of: c}
			for now := time.Now(); now.Before(until) && ctx.Err() == nil; now = time.Now() {
				c.note(now, func(r *result) { r.offered++ })
				u.serve(now)
			}
			u.hangUp()
		})
	}
	all.Wait()
	return c.take()
}

// reset begins a new count.
func (c *crowd) reset(from time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from, c.now = from, result{}
}

func (c *crowd) take() result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.now
	c.now = result{}
	return r
}

// note counts something about a request that was due then.
func (c *crowd) note(due time.Time, f func(*result)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !due.Before(c.from) {
		f(&c.now)
	}
}

// arrive gives a request that is due to a user who is free.
func (c *crowd) arrive(due time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := !due.Before(c.from)
	if counts {
		c.now.offered++
	}
	for _, free := range []*[]*user{&c.idle, &c.absent} {
		if n := len(*free); n > 0 {
			(*free)[n-1].due <- due
			*free = (*free)[:n-1]
			return
		}
	}
	if len(c.users) == maxUsers {
		if counts {
			c.now.unsent++
		}
		return
	}
	u := &user{of: c, due: make(chan time.Time, 1)}
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

// release takes back a user who is free.
func (c *crowd) release(u *user) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

func (u *user) hangUp() {
	if u.conn != nil {
		_ = u.conn.Close()
		u.conn = nil
	}
}

// serve sends a request and counts what becomes of it. A user whose patience ends
// hangs up.
func (u *user) serve(due time.Time) {
	status, again, err := u.ask(due)
	took := time.Since(due)
	if err != nil || !again {
		u.hangUp()
	}
	u.of.note(due, func(r *result) {
		if u.of.light {
			r.all = append(r.all, fate{due, status == 200 && err == nil && took <= patience, took})
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
		if u.conn, err = (&net.Dialer{Deadline: deadline}).Dial("tcp", u.of.addr); err != nil {
			u.conn = nil
			return 0, false, err
		}
		if u.in == nil {
			u.in = bufio.NewReaderSize(nil, 2<<10)
		}
		u.in.Reset(u.conn)
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
	status, length, again, later := 0, -1, true, false
	for line := 0; ; line++ {
		text, err := u.in.ReadSlice('\n')
		if err != nil {
			return 0, false, errors.Join(err, wrote)
		}
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			break
		}
		name, value, _ := bytes.Cut(text, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case line == 0 && len(text) >= len("HTTP/1.1 200"):
			status, err = strconv.Atoi(string(text[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
		case bytes.EqualFold(name, []byte("content-length")):
			length, err = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("connection")):
			again = !bytes.EqualFold(value, []byte("close"))
		case bytes.EqualFold(name, []byte("retry-after")):
			later = true
		}
		if err != nil {
			return 0, false, err
		}
	}
	if length < 0 || length > 1<<10 {
		return 0, false, errors.New("an answer has no length, or too great a one")
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(u.in, body); err != nil {
		return 0, false, err
	}
	switch {
	case status == 503 && !later:
		return -503, again, nil // it does not say when to come back
	case status == 503:
		return status, again, nil
	case u.of.good(status, body):
		return 200, again, nil
	}
	return -status, again, nil
}
