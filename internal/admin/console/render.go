package console

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"example.org/carstate/internal/ops"
)

// page is the data of every page.
type page struct {
	Title   string
	Section string // the page's section in the navigation
	Live    string // path of the live updates; empty: none
	Problem string // what went wrong
	Notice  string // what was done
	Map     bool   // the page contains a map
	Data    any

	ReadOnly bool // the page has no forms that change something

	Root    string // prefix of the session's paths; empty: no session
	Who     string // the operator's name; empty: no session
	Admin   bool   // logged in with the admin key
	Version string // version of the assets
	Program string // version of the program
	DocsURL string // the documentation of the queries
}

// show answers with the page of this name. If p has no notice, the page shows the one that an
// earlier request of the session has left (see leaveNotice). Without a session, s is nil.
func (c *Console) show(w http.ResponseWriter, s *session, status int, name string, p page) {
	p.Version, p.Program, p.DocsURL = assetVersion, c.Version, c.DocsURL
	if s != nil {
		p.Root, p.Who, p.Admin, p.ReadOnly = s.root, s.who.Name, s.who.Admin, s.who.ReadOnly
		if p.Notice == "" {
			p.Notice = c.sessions.takeNotice(s)
		}
	}
	var b bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&b, "layout.html.tmpl", p); err != nil {
		c.Log.Error("cannot render a page of the console", "page", name, "error", err)
		http.Error(w, "the page cannot be rendered; the service's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// showForm is like show, for a page with a form or a list that may have been refused with err.
func (c *Console) showForm(w http.ResponseWriter, s *session, err error, name string, p page) {
	status := http.StatusOK
	if err != nil {
		status, p.Problem = statusOf(err), err.Error()
	}
	c.show(w, s, status, name, p)
}

// fail answers with a page that shows the text of err, with the status of statusOf.
func (c *Console) fail(w http.ResponseWriter, s *session, title string, err error) {
	c.showForm(w, s, err, "failed", page{Title: title})
}

// nothing answers a request for a page that does not exist.
func (c *Console) nothing(w http.ResponseWriter, _ *http.Request, s *session) {
	c.show(w, s, http.StatusNotFound, "failed",
		page{Title: "There is nothing here", Data: "The navigation above has all pages."})
}

// done redirects to a page after a successful operation. That page shows the notice.
func (c *Console) done(w http.ResponseWriter, r *http.Request, s *session, to, notice string) {
	c.sessions.leaveNotice(s, notice)
	http.Redirect(w, r, s.at(to), http.StatusSeeOther)
}

// address returns a path with those URL parameters that are not empty.
func address(path string, parameters url.Values) string {
	maps.DeleteFunc(parameters, func(_ string, values []string) bool { return values[0] == "" })
	return strings.TrimSuffix(path+"?"+parameters.Encode(), "?")
}

// statusOf returns the HTTP status in an [ops.Refusal]. Any other error is that of a form that was
// filled in wrongly; for it, statusOf returns 400.
func statusOf(err error) int {
	if r, ok := errors.AsType[*ops.Refusal](err); ok {
		return r.Status
	}
	return http.StatusBadRequest
}

// Limits on the size of a form, in bytes.
const (
	smallForm = 16 << 10
	largeForm = 1 << 20 // 10,000 vids of 100 characters
)

func parseForm(w http.ResponseWriter, r *http.Request, limit int64) bool {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	return r.ParseForm() == nil
}
