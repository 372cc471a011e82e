package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/ops"
)

// sourceRow is one source, as the list of sources and the page of the source show it. The links in
// the list and in the page lead to paths that begin with Root.
type sourceRow struct {
	Root string // prefix of the session's paths
	ops.SourceRecord
}

// ShortList returns the vids in the source's grant, one per line. It returns "" if the grant is all
// vehicles, or has more than 500 vids, which are too many to edit in a form.
func (r sourceRow) ShortList() string {
	const few = 500
	if r.Vehicles.Len() > few {
		return ""
	}
	var b strings.Builder
	for id := range r.Vehicles.Sorted() {
		b.WriteString(string(id) + "\n")
	}
	return b.String()
}

// sourceView is the page of one source.
type sourceView struct {
	Source sourceRow
	Form   url.Values // contents of a refused form
	Began  time.Time
}

// sourceChoices is the form that sorts and filters sources.
var sourceChoices = chooser{
	Path: "/sources", What: "sources", Names: "Name",
	States: []option{{"", "any"}, {"refused", "was refused"}, {"ignored", "sends unknown signals"},
		{"silent", "not seen yet"}, {"expiring", "expires within 14 days"}, {"expired", "expired"}},
	Sorts: []option{{"", "name"}, {"seen", "seen last"}, {"refused", "refused last"}, {"newest", "newest first"},
		{"end", "expires first"}},
}

func (c *Console) showSources(w http.ResponseWriter, r *http.Request, s *session, err error, form url.Values) {
	all, now := c.Ops.Sources(), c.Now()
	choose := func(x choice, all []ops.SourceSummary) []ops.SourceSummary { return x.sources(all, now) }
	v := credentials(c, r, s, form, sourceChoices, all, choose, func(src ops.SourceSummary) (any, error) {
		source, err := c.Ops.Source(src.Name)
		return sourceRow{s.root, source}, err
	})
	c.showForm(w, s, err, "sources", page{Title: "Sources", Section: "sources", Data: v})
}

// showSource answers with the page of the source whose name is in the path. If there is no such
// source, it answers with the list of sources and the problem. The parameters problem and form are
// those of a [listing].
func (c *Console) showSource(w http.ResponseWriter, r *http.Request, s *session, problem error, form url.Values) {
	source, err := c.Ops.Source(r.PathValue("name"))
	if err != nil {
		c.showSources(w, r, s, err, nil)
		return
	}
	v := sourceView{sourceRow{s.root, source}, refill(form), c.Monitor.began}
	c.showForm(w, s, problem, "source", page{Title: "Source " + source.Name, Section: "sources", Data: v})
}

// sources returns the sources that match the filters, in the chosen order; without a chosen order,
// they are sorted by name. The parameter all must be sorted by name; sources changes it.
func (c choice) sources(all []ops.SourceSummary, now time.Time) []ops.SourceSummary {
	all = slices.DeleteFunc(all, func(src ops.SourceSummary) bool {
		is := c.State == "" || c.State == stateOf(src, now) || c.State == "silent" && src.Seen.LastSeenAt == nil ||
			c.State == "refused" && src.Seen.LastRefusedAt != nil || c.State == "ignored" && src.Seen.IgnoredSignals > 0
		return !is || !c.finds(src.Name)
	})
	slices.SortStableFunc(all, func(a, b ops.SourceSummary) int {
		switch c.Sort {
		case "seen":
			return compareTimes(b.Seen.LastSeenAt, a.Seen.LastSeenAt, longAgo)
		case "refused":
			return compareTimes(b.Seen.LastRefusedAt, a.Seen.LastRefusedAt, longAgo)
		case "newest":
			return b.CreatedAt.Compare(a.CreatedAt)
		case "end":
			return compareTimes(a.ExpiresAt, b.ExpiresAt, farAhead)
		}
		return 0
	})
	return all
}

// sourceRequest parses the form of a new source. Without the field days, the source never expires.
// If a field is invalid, the error says how to correct it.
func (c *Console) sourceRequest(form url.Values) (access.Request, error) {
	r := access.Request{Kind: access.SourceKind, Name: strings.TrimSpace(form.Get("name")),
		Vehicles: access.AllVehicles(), Strict: form.Get("strict") != ""}
	var err error
	if form.Get("scope") != "all" {
		if r.Vehicles, err = parseVehicles(form.Get("vehicles")); err != nil {
			return r, err
		}
	}
	if r.Rate, err = access.ParseRate(strings.TrimSpace(form.Get("rate"))); err != nil {
		return r, err
	}
	if form.Has("days") {
		r.Expires, err = c.expiryOf(form)
	}
	return r, err
}
