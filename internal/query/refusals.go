package query

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// How many tokens may be refused to one address, and in what time. A token that
// counts is answered all the same, so nobody can lock out a neighbour.
const (
	refusedTokens = 100
	refusedWindow = time.Minute
)

// What is remembered is bounded: refusalSets times refusalWays addresses, each
// about 850 bytes once it was refused. Where there are more, those of a set that
// were refused longest ago are forgotten.
const (
	refusalSets = 512 // a power of two
	refusalWays = 8
)

// refusals remembers which addresses had tokens refused lately. Only a refusal
// gets here: a token that counts takes none of its locks.
type refusals struct {
	seed maphash.Seed // random, so that nobody can choose addresses of one set
	sets [refusalSets]refusalSet
}

type refusalSet struct {
	mu   sync.Mutex // guards logs
	logs [refusalWays]*refusalLog
}

// refusalLog holds the times of the last refusals to one address.
type refusalLog struct {
	from network
	last int // where the newest stands; the next one is the oldest
	at   [refusedTokens]time.Duration
}

// network is who is counted together: an IPv4 address, or an IPv6 network of 64
// bits, which is the least that one customer gets.
type network [16]byte

func networkOf(a netip.Addr) network {
	a = a.Unmap()
	n := network(a.As16())
	if a.Is6() {
		clear(n[8:])
	}
	return n
}

func newRefusals() *refusals { return &refusals{seed: maphash.MakeSeed()} }

// note records that a token of the address is to be refused at now. It returns
// how long the address has to wait if it had too many refused already; that
// refusal is not recorded, so that the wait is never longer than it was told.
func (r *refusals) note(a netip.Addr, now time.Time) (wait time.Duration) {
	from, at := networkOf(a), time.Duration(now.UnixNano())
	s := r.set(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.log(from)
	if wait = l.wait(at); wait == 0 {
		l.last = (l.last + 1) % refusedTokens
		l.at[l.last] = at
	}
	return wait
}

// wait is how long the address has to wait, as note says it; nothing is recorded.
func (r *refusals) wait(a netip.Addr, now time.Time) time.Duration {
	from := networkOf(a)
	s := r.set(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		if l != nil && l.from == from {
			return l.wait(time.Duration(now.UnixNano()))
		}
	}
	return 0
}

func (r *refusals) set(from network) *refusalSet {
	return &r.sets[maphash.Bytes(r.seed, from[:])%refusalSets]
}

// wait is the time until the oldest refusal leaves the window; 0 if there is room for one more.
func (l *refusalLog) wait(at time.Duration) time.Duration {
	oldest := l.at[(l.last+1)%refusedTokens]
	// An age below zero means that the clock went back: then nothing is known.
	if age := at - oldest; oldest != 0 && age >= 0 && age < refusedWindow {
		return refusedWindow - age
	}
	return 0
}

// log finds the log of a network, or makes one where there is room or where the
// newest entry is the oldest.
func (s *refusalSet) log(from network) *refusalLog {
	victim := 0
	for i, l := range s.logs {
		switch {
		case l == nil:
			s.logs[i] = &refusalLog{from: from}
			return s.logs[i]
		case l.from == from:
			return l
		case l.at[l.last] < s.logs[victim].at[s.logs[victim].last]:
			victim = i
		}
	}
	*s.logs[victim] = refusalLog{from: from}
	return s.logs[victim]
}
