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

type sourcesView struct {
	Rows    []sourceRow
	Page    paging
	Chooser chooser
	Form    url.Values
	Began   time.Time // start of the process, from which on this node's observations date
	All     int       // number of all sources
}

// sourceRow is one source and the prefix of the URL paths to which its links lead.
type sourceRow struct {
	Root string // prefix of the session's paths
	ops.SourceRecord
}

// ShortList returns the vids in the source's grant, one per line. It returns "" if the grant is all
// vehicles, or has too many vids to edit in a form.
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
		{"silent", "not seen yet"}},
	Sorts: []option{{"", "name"}, {"seen", "seen last"}, {"refused", "refused last"}, {"newest", "newest first"}},
}

func (c *Console) sourcesPage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showSources(w, r, s, http.StatusOK, "", nil)
}

func (c *Console) showSources(
	w http.ResponseWriter, r *http.Request, s *session, status int, problem string, form url.Values,
) {
	all := c.Ops.Sources()
	v := sourcesView{Form: refill(form), Chooser: sourceChoices.of(r, s), Began: c.Monitor.began, All: len(all)}
	all = v.Chooser.sources(all)
	v.Page = v.Chooser.page(r, len(all))
	for _, src := range all[v.Page.From-1 : v.Page.To] {
		if source, err := c.Ops.Source(src.Name); err == nil {
			v.Rows = append(v.Rows, sourceRow{s.root, source})
		}
	}
	c.showTo(w, s, status, "sources", page{Title: "Sources", Section: "sources", Problem: problem, Data: v})
}

func (c *Console) sourcePage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showSource(w, r, s, http.StatusOK, "", nil)
}

// showSource answers with the page of the source whose name is in the path.
func (c *Console) showSource(
	w http.ResponseWriter, r *http.Request, s *session, status int, problem string, form url.Values,
) {
	source, err := c.Ops.Source(r.PathValue("name"))
	if err != nil {
		c.showSources(w, r, s, statusOf(err), err.Error(), nil)
		return
	}
	v := sourceView{sourceRow{s.root, source}, refill(form), c.Monitor.began}
	c.showTo(w, s, status, "source", page{Title: "Source " + source.Name, Section: "sources", Problem: problem,
		Data: v})
}

// sources returns the sources that match the filters, in the chosen order. The parameter all must
// be sorted by name.
func (c choice) sources(all []ops.SourceSummary) []ops.SourceSummary {
	all = slices.DeleteFunc(all, func(src ops.SourceSummary) bool {
		is := c.State == "" || c.State == "silent" && src.Seen.LastSeenAt == nil ||
			c.State == "refused" && src.Seen.LastRefusedAt != nil || c.State == "ignored" && src.Seen.IgnoredSignals > 0
		return !is || !c.finds(src.Name)
	})
	slices.SortStableFunc(all, func(a, b ops.SourceSummary) int {
		switch c.Sort {
		case "seen":
			return -compareTimes(a.Seen.LastSeenAt, b.Seen.LastSeenAt, -1)
		case "refused":
			return -compareTimes(a.Seen.LastRefusedAt, b.Seen.LastRefusedAt, -1)
		case "newest":
			return b.CreatedAt.Compare(a.CreatedAt)
		}
		return 0
	})
	return all
}

func (c *Console) addSource(w http.ResponseWriter, r *http.Request, s *session) {
	if !c.once(w, r, s, largeForm, access.SourceKind) {
		return
	}
	vehicles, err := access.AllVehicles(), error(nil)
	if r.PostForm.Get("scope") != "all" {
		vehicles, err = parseVehicles(r.PostForm.Get("vehicles"))
	}
	if err != nil {
		c.showSources(w, r, s, http.StatusBadRequest, err.Error(), r.PostForm)
		return
	}
	rate, err := access.ParseRate(strings.TrimSpace(r.PostForm.Get("rate")))
	if err != nil {
		c.showSources(w, r, s, http.StatusBadRequest, err.Error(), r.PostForm)
		return
	}
	src, key, err := c.Ops.Create(r.Context(), s.who, access.Request{
		Kind: access.SourceKind, Name: strings.TrimSpace(r.PostForm.Get("name")), Vehicles: vehicles,
		Rate: rate, Strict: r.PostForm.Get("strict") != "",
	})
	if err != nil {
		c.showSources(w, r, s, statusOf(err), err.Error(), r.PostForm)
		return
	}
	c.showSecret(w, s, "Source added", src, secretView{Secret: key})
}
