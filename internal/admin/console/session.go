package console

import (
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/access"
)

const (
	sessionIdle  = time.Hour
	sessionLife  = 12 * time.Hour
	maxSessions  = 256  // of all operators
	maxOwn       = 16   // of one operator
	maxFormsSent = 1024 // the newest ones, whose marks are kept (see first)

	maxStreams    = 64 // live pages of all sessions
	maxOwnStreams = 8  // of one session
)

type session struct {
	who   access.Actor
	key   access.Hash // of the login; when it becomes invalid, the session ends
	root  string      // prefix of its paths
	id    access.Hash // of root and the cookie's value
	begun time.Time

	secure bool

	notice atomic.Value // string: for the next page

	seen time.Time // guarded by sessions.mu

	streams chan struct{} // one element for each live page
}

type sessions struct {
	*Config

	mu   sync.Mutex // guards the fields below
	all  map[access.Hash]*session
	sent []access.Hash // marks of submitted forms, of all sessions
}

// See "Root of a session" in ../DESIGN.md. With TLS, the prefix __Host- keeps other hosts and plain
// HTTP responses from setting the cookie; its path must then be /, and is the session's root
// otherwise.
const (
	plainCookie  = "carstate-session"
	secureCookie = "__Host-" + plainCookie
	rootPattern  = "/s/{session}"
)

func (n *session) cookie(value string, maxAge int) *http.Cookie {
	c := &http.Cookie{
		Name: plainCookie, Value: value, Path: n.root, MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
	if n.secure {
		c.Name, c.Path, c.Secure = secureCookie, "/", true
	}
	return c
}

func rootOf(r *http.Request) string { return "/s/" + r.PathValue("session") }

func (n *session) at(page string) string { return n.root + strings.TrimSuffix(page, "/") }

// begin makes the cookie Secure also if the Origin begins with https://: TLS may end at a proxy, and
// only the browser knows of it.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request, who access.Actor, key access.Hash) *session {
	value, root, now := rand.Text(), "/s/"+rand.Text(), s.Now()
	secure := s.Secure || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	n := &session{who: who, key: key, secure: secure, root: root, id: access.HashOf(root + value), begun: now,
		seen: now, streams: make(chan struct{}, maxOwnStreams)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropInvalid(now)
	s.makeRoom(maxOwn, func(o *session) bool { return o.who == who })
	s.makeRoom(maxSessions, func(*session) bool { return true })
	s.all[n.id] = n
	http.SetCookie(w, n.cookie(value, int(sessionLife/time.Second)))
	return n
}

// makeRoom ends matching sessions, those unused for longest first, until fewer than limit are left.
// The caller holds mu.
func (s *sessions) makeRoom(limit int, match func(*session) bool) {
	some := slices.SortedFunc(maps.Values(s.all), func(a, b *session) int { return a.seen.Compare(b.seen) })
	some = slices.DeleteFunc(some, func(o *session) bool { return !match(o) })
	for _, o := range some[:max(0, len(some)-limit+1)] {
		delete(s.all, o.id)
	}
}

// A request of a script (made is false) does not extend the session.
func (s *sessions) of(r *http.Request, made bool) *session {
	root, now := rootOf(r), s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	// Pages on other ports of the host can set cookies of the same names, so each is tried.
	for _, c := range r.Cookies() {
		n := s.all[access.HashOf(root+c.Value)]
		switch {
		case n == nil || c.Name != n.cookie("", 0).Name:
			continue
		case !s.isValid(n, now):
			delete(s.all, n.id)
			return nil
		case made:
			n.seen = now
		}
		s.Known(r.Context())
		return n
	}
	return nil
}

// The caller holds mu.
func (s *sessions) dropInvalid(now time.Time) {
	maps.DeleteFunc(s.all, func(_ access.Hash, n *session) bool { return !s.isValid(n, now) })
}

// The caller of isValid holds mu.
func (s *sessions) isValid(n *session, now time.Time) bool {
	return now.Sub(n.seen) < sessionIdle && now.Sub(n.begun) < sessionLife && s.Ops.Valid(n.who, n.key)
}

func (s *sessions) alive(n *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[n.id] == n && s.isValid(n, s.Now())
}

func (s *sessions) end(w http.ResponseWriter, n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, n.id)
	http.SetCookie(w, n.cookie("", -1))
}

// first returns false for a form sent twice, known by the random mark that the page put into it, so
// that it issues no second token.
func (s *sessions) first(mark string) bool {
	hash := access.HashOf(mark) // the mark may be as long as the form
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.sent, hash) {
		return false
	}
	s.sent = append(s.sent, hash)
	if len(s.sent) > maxFormsSent {
		s.sent = s.sent[1:]
	}
	return true
}

func (s *sessions) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropInvalid(s.Now())
	return float64(len(s.all))
}
