package console

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"example.org/carstate/internal/ops"
)

// Limits of live pages.
const (
	streamLife = 10 * time.Minute // after this time, the browser must reconnect
	heartbeat  = 15 * time.Second // so that a proxy does not close the connection
)

// parts holds rendered parts of a page, by name. The element that shows a part has the part's name
// in its attribute data-live.
type parts map[string]string

// errAnotherPage means that a live page cannot be updated, because its URL now leads to a different
// page, for example after the vehicle was forgotten. The browser must reload the page.
var errAnotherPage = errors.New("the page is another one now")

// unknownYet is appended to the URL of the live updates of a page without data. They reload the
// page once there is data.
const unknownYet = "?unknown"

// serveLive keeps a page up to date: it sends the changed parts of those that render returns. It
// ends with the connection, the session, the console, errAnotherPage, or after streamLife, when the
// browser connects again. Other errors of render are logged.
func (c *Console) serveLive(
	w http.ResponseWriter, r *http.Request, s *session, render func(context.Context) (parts, error),
) {
	if !c.sessions.takeStream(s) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many pages are open: close some", http.StatusServiceUnavailable)
		return
	}
	defer c.sessions.giveStream(s)
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	stream, err := ops.NewEventStream(w)
	if err != nil {
		c.Log.Error("cannot update a live page", "error", err)
	}
	if r.Method == http.MethodHead || stream.Send("retry: 2000\n\n") != nil {
		return
	}
	sent := c.Now() // when the latest event was sent
	tick := time.NewTicker(c.LiveEvery)
	defer tick.Stop()
	last := parts{}
	for {
		now, err := render(ctx)
		switch {
		case err == errAnotherPage:
			_ = stream.Send(endOfPage) // an error means that the browser has disconnected
			return
		case err == nil:
			changed := maps.Clone(now)
			maps.DeleteFunc(changed, func(name, html string) bool { return last[name] == html })
			last = now
			event := ""
			if len(changed) > 0 {
				text, err := json.Marshal(changed) // an event's data must be one line
				if err != nil {
					c.Log.Error("cannot update a live page", "error", err)
					return
				}
				event = fmt.Sprintf("data: %s\n\n", text)
			} else if c.Now().Sub(sent) >= heartbeat {
				event = ": still here\n\n" // a comment, which shows that the connection works
			}
			if event != "" {
				if stream.Send(event) != nil {
					return
				}
				sent = c.Now()
			}
		case ctx.Err() == nil:
			c.Log.Warn("cannot update a live page", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.closing.Done():
			return
		case <-tick.C:
		}
		if !c.sessions.alive(s) {
			_ = stream.Send(endOfPage) // an error means that the browser has disconnected
			return
		}
	}
}

// parts renders the parts in which of the page name, whose template shows data, as HTML. If a
// template fails, parts returns no part.
func (c *Console) parts(name string, data any, which ...string) (parts, error) {
	made := make(parts)
	for _, piece := range which {
		var b bytes.Buffer
		if err := c.pages[name].ExecuteTemplate(&b, "live-"+piece, data); err != nil {
			return nil, err
		}
		made[piece] = b.String()
	}
	return made, nil
}

// endOfPage is the event that makes the browser reload the page. If the session has ended, the
// browser then gets the login; otherwise it gets the page that the URL now leads to.
const endOfPage = "event: end\ndata: {}\n\n"
