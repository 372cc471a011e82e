package listen

import (
	"math"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

type Bounds struct {
	MaxMean time.Duration // a longer mean queueing delay shows that more arrives than is served
	Target  time.Duration // for the minimum delay
	// Least is the lowest limit. If the delay is long with fewer connections, closing some would
	// not help, because the machine is slow or has other work.
	Least int
	// During an overload, a connection that has had no request for Idle may be evicted. Otherwise,
	// on a slow machine, Least silent connections could keep all others out.
	Idle time.Duration
}

var (
	Queries = Bounds{MaxMean: maxMean, Target: 5 * time.Millisecond, Least: 128, Idle: 20 * time.Second}
	// Telemetry is for requests that wait three times: for the body, the group commit, and the
	// answer.
	Telemetry = Bounds{MaxMean: maxMean / 3, Target: 15 * time.Millisecond, Least: 128, Idle: 20 * time.Second}
)

// Limit is an adaptive limit on the open connections of one [Guard]. It becomes active when the
// mean queueing delay exceeds MaxMean and the minimum exceeds Target. It decreases while the
// minimum exceeds Target, and otherwise increases. At twice Least and twice the open connections,
// the limit is removed.
//
// Refusing all new connections while the delay is long would admit all at once afterwards. A node
// serves most with just enough connections to be always busy: the next request arrives while its
// data are still in the processor's cache.
type Limit struct {
	Bounds
	probe   *Probe
	max     atomic.Int64 // or unlimited
	adapted time.Time    // guarded by Guard.mu
}

const unlimited = math.MaxInt64

const adaptInterval = 100 * time.Millisecond

// The steps are small: they affect the delay late, and each connection opened again costs as much
// as many answers.
const (
	farStep  = 0.25
	nearStep = 0.1
)

func NewLimit(p *Probe, b Bounds) *Limit {
	l := &Limit{Bounds: b, probe: p}
	l.max.Store(unlimited)
	return l
}

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

func (l *Limit) adapt(now time.Time, d delays, open int) bool {
	limit := l.max.Load()
	if limit == unlimited && (d.mean <= l.MaxMean || d.min <= l.Target) || now.Sub(l.adapted) < adaptInterval {
		return false
	}
	l.adapted = now
	count, least := int64(open), int64(l.Least)
	switch {
	case d.min > l.Target:
		limit = max(least, count-(count+3)/4, int64(l.factor(d.min)*float64(min(limit, count))))
	case limit >= 2*max(count, least):
		limit = unlimited
	default:
		limit = int64(math.Ceil(l.factor(d.min) * float64(limit)))
	}
	l.max.Store(limit)
	return true
}

// An overloaded listener pauses before each Accept, for the estimated time of turnsBetween answers:
// a refusal costs as much as many answers. Its backlog is short, so that the kernel refuses most
// connections at no cost, and few clients of those in it have given up.
const (
	turnsBetween = 512
	longestPause = 100 * time.Millisecond
	shortBacklog = 16
	longBacklog  = 1 << 16 // the kernel reduces it
)

// The caller holds mu.
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

// The caller holds mu.
func (g *Guard) isOver() bool {
	g.adapt(g.c.Limit.probe.now()) // with the delay so far of the probe's byte in flight
	return int64(g.open) > g.c.Limit.max.Load()
}

// The caller holds mu.
func (g *Guard) crowded() bool { return g.open >= g.c.Limit.Least && g.c.Limit.Active() }

func (g *Guard) isCrowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.crowded()
}

// markExcess marks the newest connections beyond the limit, unless these are at most an eighth of
// all: the next small change of the limit would admit others in their place. The caller holds mu.
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

// overloadPause estimates how long turnsBetween answers take: each open connection gets one in a
// mean queueing delay.
func (g *Guard) overloadPause() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOver() {
		return 0
	}
	return min(longestPause, turnsBetween*g.c.Limit.probe.Mean()/time.Duration(max(1, g.open)))
}

func withFD(of any, f func(fd int)) {
	s, ok := of.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
