package console

import (
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"time"

	"carstate/internal/access"
)

// Limits of sessions.
const (
	sessionIdle  = time.Hour
	sessionLife  = 12 * time.Hour
	maxSessions  = 256 // of all operators
	maxOwn       = 16  // of one operator
	maxFormsSent = 64  // whose marks a session remembers
)

// session is one browser in which somebody logged in.
type session struct {
	who   string
	key   access.Hash // that opened it: when that ends, so does the session
	id    access.Hash // of the cookie's value
	begun time.Time

	seen    time.Time // guarded by sessions.mu
	sent    []string  // marks of forms that were sent; guarded by sessions.mu
	notice  string    // for the next page; guarded by sessions.mu
	streams int       // guarded by streams.mu
}

// sessions are those of this node. They end with the process.
type sessions struct {
	deeds  Deeds
	now    func() time.Time
	secure bool // the listener speaks TLS

	mu  sync.Mutex // guards all
	all map[access.Hash]*session
}

// cookie is the session's. Under TLS its name keeps other hosts and plain HTTP
// from setting it; without, the port keeps nobody of the same host away, which is
// why the console belongs on loopback or behind TLS.
func (s *sessions) cookie(value string, maxAge int) *http.Cookie {
	c := &http.Cookie{Name: "carstate-session", Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if s.secure {
		c.Name, c.Secure = "__Host-carstate-session", true
	}
	return c
}

// begin starts a session and sets its cookie.
func (s *sessions) begin(w http.ResponseWriter, who string, key access.Hash) {
	value, now := rand.Text(), s.now()
	n := &session{who: who, key: key, id: access.HashOf(value), begun: now, seen: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.all {
		if !s.counts(old, now) {
			delete(s.all, old.id)
		}
	}
	s.makeRoom(maxOwn, func(o *session) bool { return o.who == who })
	s.makeRoom(maxSessions, func(*session) bool { return true })
	if s.all == nil {
		s.all = make(map[access.Hash]*session)
	}
	s.all[n.id] = n
	http.SetCookie(w, s.cookie(value, int(sessionLife/time.Second)))
}

// makeRoom ends the sessions longest unseen until there is room for one more
// among those that match; mu is held.
func (s *sessions) makeRoom(limit int, match func(*session) bool) {
	for {
		n, oldest := 0, (*session)(nil)
		for _, o := range s.all {
			if match(o) {
				n++
				if oldest == nil || o.seen.Before(oldest.seen) {
					oldest = o
				}
			}
		}
		if n < limit {
			return
		}
		delete(s.all, oldest.id)
	}
}

// of finds the session of a request; nil if there is none that counts. A request
// that somebody made keeps it from ending; what a page asks by itself does not.
func (s *sessions) of(r *http.Request, made bool) *session {
	c, err := r.Cookie(s.cookie("", 0).Name)
	if err != nil {
		return nil
	}
	id, now := access.HashOf(c.Value), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.all[id]
	if n == nil {
		return nil
	}
	if !s.counts(n, now) {
		delete(s.all, id)
		return nil
	}
	if made {
		n.seen = now
	}
	return n
}

// counts reports whether a session has not ended; mu is held.
func (s *sessions) counts(n *session, now time.Time) bool {
	return now.Sub(n.seen) < sessionIdle && now.Sub(n.begun) < sessionLife && s.deeds.Counts(n.who, n.key)
}

// alive is counts for a session that is in use for long.
func (s *sessions) alive(n *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[n.id] == n && s.counts(n, s.now())
}

// end ends a session and takes its cookie back.
func (s *sessions) end(w http.ResponseWriter, n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, n.id)
	http.SetCookie(w, s.cookie("", -1))
}

// first reports whether a form that carries this mark is sent for the first time:
// a page that is loaded again must not issue a second token.
func (s *sessions) first(n *session, mark string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(n.sent, mark) {
		return false
	}
	n.sent = append(n.sent, mark)
	if len(n.sent) > maxFormsSent {
		n.sent = n.sent[1:]
	}
	return true
}

// leaveNotice and takeNotice carry what was done from the form to the page that
// comes after it.
func (s *sessions) leaveNotice(n *session, notice string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.notice = notice
}

func (s *sessions) takeNotice(n *session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notice := n.notice
	n.notice = ""
	return notice
}

// count is the number of sessions that have not ended.
func (s *sessions) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := 0.0, s.now()
	for _, o := range s.all {
		if s.counts(o, now) {
			n++
		}
	}
	return n
}
