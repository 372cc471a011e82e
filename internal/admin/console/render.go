package console

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

type page struct {
	Title   string
	Section string // in the navigation
	Live    string // path of the live updates; empty: none
	Problem string
	Notice  string
	Map     bool
	Data    any

	Root string // prefix of the session's paths; empty: no session
	Who  access.Actor
}

func (c *Console) show(w http.ResponseWriter, s *session, status int, name string, p page) {
	if s != nil {
		p.Root, p.Who = s.root, s.who
		p.Notice, _ = s.notice.Swap("").(string)
	}
	html, err := c.render(name, "layout.html.tmpl", p)
	if err != nil {
		c.Log.Error("cannot render a page of the console", "page", name, "error", err)
		http.Error(w, "the page cannot be rendered; the service's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, html)
}

func (c *Console) render(page, template string, data any) (html string, err error) {
	var b strings.Builder
	err = c.pages[page].ExecuteTemplate(&b, template, data)
	return b.String(), err
}

func (c *Console) showForm(w http.ResponseWriter, s *session, err error, name string, p page) {
	status := http.StatusOK
	if err != nil {
		status, p.Problem = statusOf(err), err.Error()
	}
	c.show(w, s, status, name, p)
}

func (c *Console) fail(w http.ResponseWriter, s *session, title string, err error) {
	c.showForm(w, s, err, "failed", page{Title: title})
}

// refuse answers a script that asked about a vehicle.
func (c *Console) refuse(w http.ResponseWriter, err error) {
	refusal := c.Ops.Explain("vehicle.show", err)
	http.Error(w, refusal.Error(), refusal.Status)
}

func (c *Console) nothing(w http.ResponseWriter, _ *http.Request, s *session) {
	c.show(w, s, http.StatusNotFound, "failed",
		page{Title: "There is nothing here", Data: "The navigation above has all pages."})
}

func (c *Console) done(w http.ResponseWriter, r *http.Request, s *session, to, notice string) {
	s.notice.Store(notice)
	http.Redirect(w, r, s.at(to), http.StatusSeeOther)
}

func address(path string, parameters url.Values) string {
	maps.DeleteFunc(parameters, func(_ string, values []string) bool { return values[0] == "" })
	return strings.TrimSuffix(path+"?"+parameters.Encode(), "?")
}

// statusOf takes any error but an [ops.Refusal] as that of a form that was filled in wrongly.
func statusOf(err error) int {
	if r, ok := errors.AsType[*ops.Refusal](err); ok {
		return r.Status
	}
	return http.StatusBadRequest
}

const (
	smallForm = 16 << 10
	largeForm = 1 << 20 // 10,000 vids of 100 characters
)

func parseForm(w http.ResponseWriter, r *http.Request, limit int64) bool {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	return r.ParseForm() == nil
}
