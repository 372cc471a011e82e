package console

import (
	"bytes"
	"crypto/rand"
	"encoding/json/v2"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/inwords"
	"carstate/internal/ops"
	"carstate/internal/vehicle"
)

// chosen reports whether a box is to be ticked: as it was in a form that was refused,
// and all of them in a new one.
func chosen(form url.Values, name, value string) bool {
	return form == nil || slices.Contains(form[name], value)
}

// page is what every page is made of.
type page struct {
	Title   string
	Section string // of the navigation
	Live    string // path of what keeps the page up to date; "": nothing does
	Problem string // what went wrong
	Notice  string // what was done
	Map     bool   // there is one on it
	Data    any

	Root    string // of the session's paths; "": nobody is logged in
	Who     string // is logged in; "": nobody
	Admin   bool   // with the admin key
	Version string // of what the page loads
}

// pages are the templates of each page, by name.
type pages map[string]*template.Template

var pageNames = []string{"login", "fleet", "vehicles", "vehicle", "roads", "forgotten", "tokens", "token", "sources", "source", "operators", "audit", "secret", "confirm", "failed"}

func (c *Console) parsePages() pages {
	p := make(pages)
	base := template.Must(template.New("layout.html.tmpl").Funcs(c.functions()).ParseFS(files, "files/layout.html.tmpl", "files/parts.html.tmpl"))
	for _, name := range pageNames {
		p[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "files/"+name+".html.tmpl"))
	}
	return p
}

// functions are what the templates may call.
func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"plural": func(n int, one, many string) string {
			return inwords.Count(n) + " " + map[bool]string{true: one, false: many}[n == 1]
		},
		"ago":     func(t time.Time) string { return inwords.Ago(c.Now().Sub(t)) },
		"for":     func(t time.Time) string { return inwords.Duration(max(0, c.Now().Sub(t))) },
		"until":   func(t time.Time) string { return inwords.Until(t.Sub(c.Now())) },
		"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" },
		"day":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") + " UTC" },
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04") },
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"count":   inwords.Count[int],
		"calls":   inwords.Count[int64],
		"rate":    inwords.Rate,
		"bytes":   inwords.Bytes,
		"number":  inwords.Number,
		"measure": inwords.Measure,
		"mark":    rand.Text,
		"receipt": func(r access.ForgetReceipt) (string, error) { text, err := json.Marshal(r); return string(text), err },
		"chosen":  chosen,

		"actions":  func() []string { return ops.Actions },
		"now":      c.Now,
		"state":    func(t tokenRow) string { return stateOf(t.TokenSummary, c.Now()) },
		"vehicles": vehiclesInWords,
		"sum":      sum,
		"latest":   func(all []time.Time) time.Time { return slices.MaxFunc(all, time.Time.Compare) },
		"why":      func(outcome string) string { return outcomeWords[outcome] },
	}
}

// show answers with a page.
func (c *Console) show(w http.ResponseWriter, status int, name string, p page) {
	p.Version = assetVersion
	var b bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&b, "layout.html.tmpl", p); err != nil {
		c.Log.Error("a page of the console cannot be made", "page", name, "error", err)
		http.Error(w, "the page cannot be made; the service's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// showTo is show for somebody who is logged in.
func (c *Console) showTo(w http.ResponseWriter, s *session, status int, name string, p page) {
	p.Root, p.Who, p.Admin = s.root, s.who.Name, s.who.Admin
	if p.Notice == "" {
		p.Notice = c.sessions.takeNotice(s)
	}
	c.show(w, status, name, p)
}

// fail answers with a page that says what went wrong.
func (c *Console) fail(w http.ResponseWriter, s *session, status int, title, problem string) {
	c.showTo(w, s, status, "failed", page{Title: title, Problem: problem})
}

// export answers with a whole list as a file.
func (c *Console) export(w http.ResponseWriter, s *session, title, action, format string, serve func() error) {
	if _, known := ops.ExportFormats[format]; !known {
		c.fail(w, s, http.StatusBadRequest, title, "format is ndjson or csv")
		return
	}
	if err := serve(); err != nil {
		refusal := c.Ops.Explain(action, err)
		c.fail(w, s, refusal.Status, title, refusal.Error())
	}
}

// done goes back to a list after a deed, and has it say what was done.
func (c *Console) done(w http.ResponseWriter, r *http.Request, s *session, to, notice string) {
	c.sessions.leaveNotice(s, notice)
	http.Redirect(w, r, s.at(to), http.StatusSeeOther)
}

// statusOf is the status of an operation that failed.
func statusOf(err error) int {
	if r, ok := errors.AsType[*ops.Refusal](err); ok {
		return r.Status
	}
	return http.StatusServiceUnavailable
}

// Limits of what a form may hold.
const (
	smallForm = 16 << 10
	largeForm = 1 << 20 // some 40,000 vids
)

func parseForm(w http.ResponseWriter, r *http.Request, limit int64) bool {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	return r.ParseForm() == nil
}

// refill is a form as it is shown again after it was refused: all that was typed
// but secrets, which have no place in it.
func refill(form url.Values) url.Values {
	if form == nil {
		return nil // a new one
	}
	again := make(url.Values, len(form))
	for name, values := range form {
		for _, v := range values {
			if access.Redact(v) == v {
				again.Add(name, v)
			}
		}
	}
	return again
}

// pageNumber reads which page of a list is asked for, from 1 on.
func pageNumber(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || n < 1 || n > 1_000_000 {
		return 1
	}
	return n
}

// paging leads from one page of a list to the next.
type paging struct {
	From, To, Of       int // of the entries shown
	Previous, Next     int // pages; 0: none
	Number, PagesInAll int
	Path               string // without the page's number
}

func newPaging(path string, number, size, of int) paging {
	last := max(1, (of+size-1)/size)
	number = min(number, last)
	p := paging{From: (number-1)*size + 1, To: min(number*size, of), Of: of, Number: number, PagesInAll: last, Path: path}
	if number > 1 {
		p.Previous = number - 1
	}
	if number < last {
		p.Next = number + 1
	}
	return p
}

// seconds is a duration in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// parseVehicles reads what was written into a form: vids, apart by spaces, commas
// or lines.
func parseVehicles(text string) (access.Vehicles, error) {
	var ids []vehicle.ID
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
		id, err := vehicle.ParseReportingID(word)
		if err != nil {
			return access.Vehicles{}, fmt.Errorf("vehicle %d of the list: %w", i+1, err)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return access.Vehicles{}, errors.New("name the vehicles, or choose all")
	}
	return access.VehicleSet(ids...), nil
}
