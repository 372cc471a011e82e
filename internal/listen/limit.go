package listen

import (
	"math"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds say when a listener is overloaded, and what it does then.
type Bounds struct {
	MaxMean time.Duration // a longer mean queueing delay indicates that more arrives than is served
	Target  time.Duration // the minimum delay to which the limit of an overloaded listener leads
	// Least is the lowest limit on open connections. If the delay is long with fewer, the machine is
	// slow or busy with other work, and closing connections would not help.
	Least int
	// Idle is how long an open connection must wait for a request to be evicted during an overload.
	// Without eviction, on a machine that is slow because of other work, Least connections that send
	// nothing could keep all others out.
	Idle time.Duration
}

var (
	// Queries are the bounds of a listener for small requests.
	Queries = Bounds{MaxMean: maxMean, Target: 5 * time.Millisecond, Least: 128, Idle: 20 * time.Second}
	// Telemetry are the bounds of a listener whose requests wait three times for the process: for
	// the body, for the group commit, and for the answer.
	Telemetry = Bounds{MaxMean: maxMean / 3, Target: 15 * time.Millisecond, Least: 128, Idle: 20 * time.Second}
)

// Limit is an adaptive limit on the number of open connections of one [Guard]. It becomes active when
// the mean queueing delay exceeds MaxMean and the minimum exceeds Target. Then it decreases while the
// minimum exceeds Target, and otherwise increases, until it is twice Least and twice the number of
// open connections, and is removed.
//
// So an overloaded node finds the number of connections that it can serve. To refuse all new ones
// while the delay is long would admit all at once when it is short again. A node serves the most
// requests with just enough connections to be always busy: the next request of a connection arrives
// while its data are still in the processor's cache.
type Limit struct {
	Bounds
	probe   *Probe
	max     atomic.Int64 // the limit, or unlimited
	adapted time.Time    // the time of the last change; guarded by Guard.mu
}

const unlimited = math.MaxInt64

// adaptInterval is the shortest time between two changes of the limit.
const adaptInterval = 100 * time.Millisecond

// The limit changes in small steps: a change affects the delay only after some time, and each
// connection that is closed and opened again costs as much as many answers.
const (
	farStep  = 0.25
	nearStep = 0.1
)

// NewLimit returns a limit that adapts to the delays that p measures.
func NewLimit(p *Probe, b Bounds) *Limit {
	l := &Limit{Bounds: b, probe: p}
	l.max.Store(unlimited)
	return l
}

// Active reports whether the number of connections is limited at present.
func (l *Limit) Active() bool { return l.max.Load() != unlimited }

func (l *Limit) factor(delay time.Duration) float64 {
	switch {
	case delay > l.Target*2:
		return 1 - farStep
	case delay < l.Target/2:
		return 1 + farStep/2
	}
	return 1 + (float64(l.Target)/float64(delay)-1)*nearStep
}

// adapt computes the limit again, and reports whether it has set it. It does nothing if the last
// change was less than adaptInterval ago, or if the limit is not active and stays so.
func (l *Limit) adapt(now time.Time, d delays, open int) bool {
	limit := l.max.Load()
	if limit == unlimited && (d.mean <= l.MaxMean || d.min <= l.Target) || now.Sub(l.adapted) < adaptInterval {
		return false
	}
	l.adapted = now
	count, least := int64(open), int64(l.Least)
	switch {
	case d.min > l.Target:
		// It decreases further only after some connections have ended.
		limit = max(least, count-(count+3)/4, int64(l.factor(d.min)*float64(min(limit, count))))
	case limit >= 2*max(count, least):
		limit = unlimited
	default:
		limit = int64(math.Ceil(l.factor(d.min) * float64(limit)))
	}
	l.max.Store(limit)
	return true
}

// An overloaded listener pauses before each Accept, because the refusal of a connection costs as
// much as many answers: for the estimated time of turnsBetween answers, but at most longestPause. It
// also has a short backlog, so that the kernel refuses most new connections without work for the
// process, and few of those in it have clients that have already given up.
const (
	turnsBetween = 512
	longestPause = 100 * time.Millisecond
	shortBacklog = 16
	longBacklog  = 1 << 16 // the kernel reduces it to its own maximum
)

// adapt sets limit, marks and listen backlog by delays of the time now. The caller holds mu.
func (g *Guard) adapt(now time.Time, d delays) {
	if g.c.Limit.adapt(now, d, g.open) && g.c.Limit.Active() {
		g.markExcess()
	}
	n := longBacklog
	if g.crowded() {
		n = shortBacklog
	}
	if n != g.backlog {
		g.backlog = n
		for _, l := range g.listeners {
			withFD(l.Listener, func(fd int) { _ = syscall.Listen(fd, n) }) // Linux allows it at any time
		}
	}
}

// isOver reports whether more connections are open than the limit allows. The caller holds mu.
func (g *Guard) isOver() bool {
	g.adapt(g.c.Limit.probe.now()) // includes the delay so far of a byte of the probe that is still in flight
	return int64(g.open) > g.c.Limit.max.Load()
}

// crowded reports whether connections are limited and at least Least are open. The caller holds mu.
func (g *Guard) crowded() bool { return g.open >= g.c.Limit.Least && g.c.Limit.Active() }

func (g *Guard) isCrowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.crowded()
}

// markExcess marks the newest connections beyond the limit, which are to be closed, and unmarks all
// others. If these are at most an eighth of all, it marks none: the next small change of the limit
// would admit others in their place. The caller holds mu.
func (g *Guard) markExcess() {
	excess := 0
	if limit := int(g.c.Limit.max.Load()); g.open-g.open/8 > limit {
		excess = g.open - limit
	}
	for _, c := range slices.Backward(g.conns) {
		if c != nil {
			c.excess.Store(excess > 0)
			excess--
		}
	}
}

// overloadPause returns how long Accept pauses. It assumes that the server answers one request of each
// connection in the mean queueing delay.
func (g *Guard) overloadPause() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOver() {
		return 0
	}
	return min(longestPause, turnsBetween*g.c.Limit.probe.Mean()/time.Duration(max(1, g.open)))
}

// withFD calls f with the file descriptor of a listener or connection, if it has one.
func withFD(of any, f func(fd int)) {
	s, ok := of.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
