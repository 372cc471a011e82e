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
	Rows   []ops.SourceRecord
	Page   paging
	Choice choice
	Form   url.Values
	Began  time.Time // since when this node has seen what it has seen
	All    int       // how many there are
}

func (c *Console) sourcesPage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showSources(w, r, s, http.StatusOK, "", nil)
}

func (c *Console) showSources(w http.ResponseWriter, r *http.Request, s *session, status int, problem string, form url.Values) {
	all := c.Ops.Sources()
	v := sourcesView{Form: refill(form), Choice: choiceOf(r), Began: c.Monitor.began, All: len(all)}
	all = v.Choice.sources(all)
	v.Page = newPaging(v.Choice.Path(s.root+"/sources"), pageNumber(r), listed, len(all))
	for _, src := range all[v.Page.From-1 : v.Page.To] {
		if row, err := c.Ops.Source(src.Name); err == nil {
			v.Rows = append(v.Rows, row)
		}
	}
	c.showTo(w, s, status, "sources", page{Title: "Sources", Section: "sources", Problem: problem, Data: v})
}

// sources are the sources that are chosen of all.
func (c choice) sources(all []ops.SourceSummary) []ops.SourceSummary {
	return slices.DeleteFunc(all, func(src ops.SourceSummary) bool {
		is := c.State == "" || c.State == "silent" && src.Seen.LastSeenAt == nil ||
			c.State == "refused" && src.Seen.LastRefusedAt != nil || c.State == "ignored" && src.Seen.IgnoredSignals > 0
		return !is || !c.finds(src.Name)
	})
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
	src, key, err := c.Ops.AddSource(r.Context(), s.who, access.SourceRequest{
		Name: strings.TrimSpace(r.PostForm.Get("name")), Vehicles: vehicles, Rate: rate,
		Strict: r.PostForm.Get("strict") != "",
	})
	if err != nil {
		c.showSources(w, r, s, statusOf(err), err.Error(), r.PostForm)
		return
	}
	c.showSecret(w, s, "Source added", src, secretView{Secret: key})
}
