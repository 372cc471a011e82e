package console

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"
)

const streamLife = 10 * time.Minute // After it, the browser must reconnect.

// view makes a page, also for its live updates.
type view func(context.Context, *http.Request, *session) (page, error)

// Ends of page.Live: the page has no data yet, or it has the way of a car.
const (
	unknownYet = "?unknown"
	withWay    = "?way"
)

// serveLive sends the changed parts of a page. It ends with the connection, the session or
// the listener, after streamLife, or once the page has another Live: the vehicle has appeared, sent
// its first position or was forgotten, or the first road is known.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request, s *session, name string, v view) {
	for _, streams := range []chan struct{}{s.streams, c.streams} {
		select {
		case streams <- struct{}{}:
			defer func() { <-streams }()
		default:
			w.Header().Set("Retry-After", "60")
			http.Error(w, "too many pages are open: close some", http.StatusServiceUnavailable)
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	shown, sent, late := r.URL.Query(), make(map[string]string), false
	c.Ops.ServeEvents(w, r.WithContext(ctx), "retry: 2000\n\n", func(silent bool) (string, time.Duration, bool) {
		var changed map[string]string
		p, err := v(ctx, r, s)
		unknown, way := strings.HasSuffix(p.Live, unknownYet), strings.HasSuffix(p.Live, withWay)
		if err == nil && !unknown {
			changed, err = c.parts(name, p.Data)
		}
		switch {
		case !c.sessions.alive(s), err == nil && (unknown != shown.Has("unknown") || way != shown.Has("way")):
			return endOfPage, 0, true
		case err != nil && ctx.Err() == nil:
			c.Log.Warn("cannot update a live page", "error", err)
			late = true
			return "event: late\ndata: {}\n\n", c.LiveEvery, false
		}
		maps.DeleteFunc(changed, func(name, html string) bool { return sent[name] == html })
		maps.Copy(sent, changed)
		switch {
		case len(changed) > 0 || late:
			late = false
			// An event's data must be one line.
			text, _ := json.Marshal(changed, jsontext.AllowInvalidUTF8(true))
			return fmt.Sprintf("data: %s\n\n", text), c.LiveEvery, false
		case silent:
			return ": still here\n\n", c.LiveEvery, false // a comment in SSE
		}
		return "", c.LiveEvery, false
	})
}

// parts renders the parts of a page, by the attribute data-live of the element that shows them.
func (c *Console) parts(name string, data any) (map[string]string, error) {
	made := make(map[string]string)
	for _, t := range c.pages[name].Templates() {
		piece, live := strings.CutPrefix(t.Name(), "live-")
		if !live {
			continue
		}
		html, err := c.render(name, t.Name(), data)
		if err != nil {
			return nil, err
		}
		made[piece] = html
	}
	return made, nil
}

// endOfPage makes the browser reload the page, or get the login if the session has ended.
const endOfPage = "event: end\ndata: {}\n\n"
