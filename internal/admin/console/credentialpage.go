package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

type credentialPages struct {
	*Console
	credentialKind
}

type credentialRow struct {
	State  string // see stateOf
	Record any    // ops.TokenRecord, ops.SourceRecord or ops.OperatorSummary
}

func (p credentialPages) row(g *access.Grant) credentialRow {
	row := credentialRow{State: stateOf(&g.Credential, p.Now())}
	switch p.Kind {
	case access.TokenKind:
		row.Record = p.Ops.TokenRecord(g)
	case access.SourceKind:
		row.Record = p.Ops.SourceRecord(g)
	default:
		row.Record = p.Ops.OperatorSummary(g.Credential)
	}
	return row
}

type credentialsView struct {
	Rows    []credentialRow
	Page    paging
	Chooser chooser
	Form    url.Values // of a refused form
	All     int
	Soon    int // how many expire soon
}

type credentialView struct {
	credentialRow
	Form url.Values
}

// showAll also answers a refused form, which it shows again; err says why.
func (p credentialPages) showAll(w http.ResponseWriter, r *http.Request, s *session, err error, form url.Values) {
	all, now := p.Ops.Credentials(p.Kind), p.Now()
	if p.Kind == access.TokenKind {
		slices.Reverse(all)
	}
	v := credentialsView{Chooser: chooserOf(r, s, p.list()), Form: refill(form), All: len(all)}
	v.Soon = len(chooser{State: "expiring"}.apply(slices.Clone(all), now))
	all = v.Chooser.apply(all, now)
	v.Page = v.Chooser.page(r, len(all))
	for _, g := range all[v.Page.From-1 : v.Page.To] {
		v.Rows = append(v.Rows, p.row(g))
	}
	p.showForm(w, s, err, p.list(), page{Title: p.title, Section: p.list(), Data: v})
}

func (p credentialPages) showOne(w http.ResponseWriter, r *http.Request, s *session, err error, form url.Values) {
	g, missing := p.Ops.Credential(p.Kind, r.PathValue("name"))
	if missing != nil {
		p.showAll(w, r, s, missing, nil)
		return
	}
	p.showForm(w, s, err, p.Policy().Noun, page{Title: inserted(p.one, holderOf(g.Credential)), Section: p.list(),
		Data: credentialView{p.row(g), refill(form)}})
}

func (p credentialPages) create(w http.ResponseWriter, r *http.Request, s *session) {
	if !p.once(w, r, s) {
		return
	}
	var created access.Credential
	var secret string
	request, err := p.requestOf(p.Kind, r.PostForm)
	if err == nil {
		created, secret, err = p.Ops.Create(r.Context(), s.who, request)
	}
	if err != nil {
		p.showAll(w, r, s, err, r.PostForm)
		return
	}
	p.showSecret(w, s, p.created, secretView{Credential: created, Secret: secret})
}

func (p credentialPages) rotate(w http.ResponseWriter, r *http.Request, s *session) {
	overlaps := p.Policy().Overlap
	if (!overlaps || r.PostForm.Get("overlap") == "0") && !p.sure(w, r, s, endOldSecret) {
		return
	}
	if !p.once(w, r, s) {
		return
	}
	var overlap time.Duration
	var err error
	if overlaps {
		if overlap, err = overlapOf(r.PostForm); err != nil {
			p.showAll(w, r, s, err, nil)
			return
		}
	}
	rotated, secret, err := p.Ops.Rotate(r.Context(), s.who, p.Kind, r.PathValue("name"), overlap)
	if err != nil {
		p.showAll(w, r, s, err, nil)
		return
	}
	p.showSecret(w, s, p.rotated, secretView{rotated, secret, true, overlap})
}

func (p credentialPages) end(w http.ResponseWriter, r *http.Request, s *session) {
	if !p.sure(w, r, s, p.askEnd) {
		return
	}
	ended, err := p.Ops.End(r.Context(), s.who, p.Kind, r.PathValue("name"))
	if err != nil {
		p.showAll(w, r, s, err, nil)
		return
	}
	p.done(w, r, s, "/"+p.list(), inserted(p.ended, holderOf(ended)))
}

func (p credentialPages) change(w http.ResponseWriter, r *http.Request, s *session) {
	to, err := p.changeOf(r.PostForm)
	if err == nil {
		_, err = p.Ops.ChangeCredential(r.Context(), s.who, p.Kind, r.PathValue("name"), to)
	}
	if err != nil {
		p.showOne(w, r, s, err, r.PostForm)
		return
	}
	p.done(w, r, s, "/"+p.list()+"/"+r.PathValue("name"), "The "+p.Policy().Noun+" is changed.")
}

func (p credentialPages) grant(w http.ResponseWriter, r *http.Request, s *session) {
	form := r.PostForm
	name, all := r.PathValue("name"), form.Get("all") != ""
	vehicles, err := access.AllVehicles(), error(nil)
	parsed := func(field string) (v access.Vehicles) {
		if strings.TrimSpace(form.Get(field)) != "" && err == nil {
			v, err = parseVehicles(form.Get(field))
		}
		return v
	}
	add, remove := parsed("add"), parsed("remove")
	if !all && form.Has("only") {
		vehicles, err = parseVehicles(form.Get("only"))
	}
	switch {
	case err != nil:
	case all && add.Len()+remove.Len() > 0:
		err = errors.New("choose all vehicles, or list the vehicles to add and to remove")
	case all || form.Has("only"):
		if all && !p.sure(w, r, s, p.askAll) {
			return
		}
		_, err = p.Ops.ChangeCredential(r.Context(), s.who, p.Kind, name, access.Change{Vehicles: &vehicles})
	case p.Kind == access.TokenKind:
		_, err = p.Ops.GrantToken(r.Context(), s.who, name, add.Sorted(), remove.Sorted())
	default:
		err = errors.New("name the vehicles, or choose all")
	}
	if err != nil {
		p.showOne(w, r, s, err, form)
		return
	}
	p.done(w, r, s, "/"+p.list()+"/"+name, "The vehicles of the "+p.Policy().Noun+" are changed.")
}

func (p credentialPages) rotateAdminKey(w http.ResponseWriter, r *http.Request, s *session) {
	if s.who.Admin && !p.sure(w, r, s, replaceAdminKey) {
		return
	}
	if _, err := p.Ops.RotateAdminKey(r.Context(), s.who); err != nil {
		p.showAll(w, r, s, err, nil)
		return
	}
	p.sessions.end(w, s)
	p.show(w, nil, http.StatusOK, "login",
		page{Title: "Log in",
			Notice: "The admin key is replaced. The new one is in admin.key of the data directory: log in with that.",
			Data:   "/"})
}

type confirmView struct {
	question
	Back   string // if the answer is no
	Path   string
	Fields url.Values
}

// sure reports whether the operator has confirmed the form. If not, it answers with a page that asks.
// It is true for a credential that does not exist, because the operation will be refused.
func (p credentialPages) sure(w http.ResponseWriter, r *http.Request, s *session, q question) bool {
	name := r.PathValue("name") // empty: the admin key
	known, err := p.Ops.Credential(p.Kind, name)
	if r.PostForm.Get("sure") == "yes" || err != nil && name != "" {
		return true
	}
	holder := ""
	if err == nil {
		holder = holderOf(known.Credential)
	}
	q = question{inserted(q.Ask, holder), inserted(q.Then, holder), inserted(q.Do, holder)}
	p.show(w, s, http.StatusOK, "confirm", page{Title: q.Ask, Section: p.list(),
		Data: confirmView{q, "/" + p.list(), r.URL.Path, refill(r.PostForm)}})
	return false
}

func inserted(text, holder string) string { return strings.ReplaceAll(text, "NAME", holder) }

func holderOf(c access.Credential) string { return cmp.Or(c.Developer, c.Name) }

type secretView struct {
	access.Credential
	Secret  string
	Rotated bool
	Overlap time.Duration // for which the replaced secret stays valid
}

func (p credentialPages) showSecret(w http.ResponseWriter, s *session, title string, v secretView) {
	p.show(w, s, http.StatusCreated, "secret", page{Title: title, Section: p.list(), Data: v})
}

func (p credentialPages) once(w http.ResponseWriter, r *http.Request, s *session) bool {
	if p.sessions.first(r.PostForm.Get("mark")) {
		return true
	}
	p.fail(w, s, "Already done", ops.Refusalf(http.StatusConflict,
		"this form was sent before, so nothing was done: go to %s", p.title))
	return false
}
