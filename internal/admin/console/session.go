package console

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
	"carstate/internal/ops"
)

// Limits of sessions.
const (
	sessionIdle  = time.Hour
	sessionLife  = 12 * time.Hour
	maxSessions  = 256  // of all operators
	maxOwn       = 16   // of one operator
	maxFormsSent = 1024 // whose marks are remembered
)

// session is one browser in which somebody logged in.
type session struct {
	who   access.Actor
	key   access.Hash // that opened it: when that ends, so does the session
	root  string      // the beginning of the path of each of its pages
	id    access.Hash // of root and the cookie's value
	begun time.Time

	secure bool // its cookie goes over TLS only

	seen    time.Time // guarded by sessions.mu
	notice  string    // for the next page; guarded by sessions.mu
	streams int       // guarded by streams.mu
}

// sessions are those of this node. They end with the process.
type sessions struct {
	ops    *ops.Operations
	known  func(request context.Context)
	now    func() time.Time
	secure bool // the listener speaks TLS

	mu   sync.Mutex // guards what follows
	all  map[access.Hash]*session
	sent []access.Hash // marks of the forms that were sent, of all sessions
}

// A browser sends a cookie to every port of a host, but only with paths that the cookie
// names. Each session therefore has a random root for the paths of its pages. Another
// server on the same host does not know the root, so the plain cookie never reaches it.
// The root is needed beside the cookie, whose stricter name under TLS demands the path /:
// with that prefix, no other host and no plain HTTP can set it.
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

// rootOf is the root of the session that a request names; "" if it names none.
func rootOf(r *http.Request) string {
	if name := r.PathValue("session"); name != "" {
		return "/s/" + name
	}
	return ""
}

// at is the path of a page in this session.
func (n *session) at(page string) string { return n.root + strings.TrimSuffix(page, "/") }

// begin starts a session and sets its cookie. Where a proxy ends TLS, only the browser
// knows that there is any: it says so in Origin.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request, who access.Actor, key access.Hash) *session {
	value, root, now := rand.Text(), "/s/"+rand.Text(), s.now()
	secure := s.secure || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	n := &session{who: who, key: key, secure: secure, root: root, id: access.HashOf(root + value), begun: now, seen: now}
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
	http.SetCookie(w, n.cookie(value, int(sessionLife/time.Second)))
	return n
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
	c, err := r.Cookie(secureCookie)
	if err != nil && !s.secure {
		c, err = r.Cookie(plainCookie)
	}
	if err != nil {
		return nil
	}
	id, now := access.HashOf(rootOf(r)+c.Value), s.now()
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
	s.known(r.Context())
	return n
}

// counts reports whether a session has not ended; mu is held.
func (s *sessions) counts(n *session, now time.Time) bool {
	return now.Sub(n.seen) < sessionIdle && now.Sub(n.begun) < sessionLife && s.ops.Valid(n.who, n.key)
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
	http.SetCookie(w, n.cookie("", -1))
}

// first reports whether a form that carries this mark is sent for the first time,
// in whichever session: a page that is loaded again must not issue a second token.
func (s *sessions) first(mark string) bool {
	hash := access.HashOf(mark) // of a mark that may be as long as a form
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
