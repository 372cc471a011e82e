package console

import (
	"cmp"
	"errors"
	"fmt"
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

// listing is a function that answers with a page that contains a form. If the form was submitted
// and refused, err says why, and form has the submitted contents, which the page shows again. For a
// new form, err and form are nil.
type listing func(w http.ResponseWriter, r *http.Request, s *session, err error, form url.Values)

// handler answers a request that has a session.
type handler func(http.ResponseWriter, *http.Request, *session)

// first returns the handler that shows a page with an empty form: the form was not submitted yet.
func first(show listing) handler {
	return func(w http.ResponseWriter, r *http.Request, s *session) { show(w, r, s, nil, nil) }
}

// credentialsView is the page that lists the credentials of one kind.
type credentialsView struct {
	Rows    []any
	Page    paging
	Chooser chooser
	Form    url.Values // contents of a refused form
	All     int        // number of all credentials of the kind
	Soon    int        // number of tokens that expire soon
	Began   time.Time  // start of the process; this node has observed the use of credentials since then
}

// credentials returns the data of the requested page of a list of credentials. The function choose
// applies the filters and the order in the URL. The function row returns the row of one credential.
// If row returns an error, for example because the credential no longer exists, the page does not
// show the credential.
func credentials[S any](
	c *Console, r *http.Request, s *session, form url.Values, list chooser, all []S,
	choose func(choice, []S) []S, row func(S) (any, error),
) credentialsView {
	v := credentialsView{Chooser: list.of(r, s), Form: refill(form), All: len(all), Began: c.Monitor.began}
	all = choose(v.Chooser.choice, all)
	v.Page = v.Chooser.page(r, len(all))
	for _, x := range all[v.Page.From-1 : v.Page.To] {
		if made, err := row(x); err == nil {
			v.Rows = append(v.Rows, made)
		}
	}
	return v
}

// create returns the handler of the form that creates a credential, which the function parse reads.
// After the operation, the handler shows the new secret. If the form or the operation is refused,
// it answers with show.
func (c *Console) create(
	kind access.Kind, title string, parse func(url.Values) (access.Request, error), show listing,
) handler {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		if !c.once(w, r, s, kind) {
			return
		}
		var created access.Credential
		var secret string
		request, err := parse(r.PostForm)
		if err == nil {
			created, secret, err = c.Ops.Create(r.Context(), s.who, request)
		}
		if err != nil {
			show(w, r, s, err, r.PostForm)
			return
		}
		query := ""
		if kind == access.TokenKind && c.QueryURL != "" {
			query = fmt.Sprintf("curl -G %s/api/ic/if_dt_tflow_car_driving_state -d access_token=%s -d vid=%s",
				c.QueryURL, secret, sampleVehicle(created))
		}
		c.showSecret(w, s, title, created, secretView{Secret: secret, Query: query})
	}
}

// rotate returns the handler of the form that gives a credential a new secret. The handler first
// asks for confirmation if the old secret ends at once. After the operation it shows the new
// secret. If the form or the operation is refused, it answers with show.
func (c *Console) rotate(kind access.Kind, title string, show listing) handler {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		holder, ok := c.Ops.Holder(kind, r.PathValue("name"))
		if ends := !kind.Policy().Overlap || r.PostForm.Get("overlap") == "0"; ok && ends &&
			!c.sure(w, s, r, endOldSecret.about(holder, kind)) {
			return
		}
		if !c.once(w, r, s, kind) {
			return
		}
		var overlap time.Duration
		old := "The old one has ended, and so have the sessions that it opened."
		if kind.Policy().Overlap {
			var err error
			if overlap, err = overlapOf(r.PostForm); err != nil {
				show(w, r, s, err, nil)
				return
			}
			old = oldInWords(overlap)
		}
		rotated, secret, err := c.Ops.Rotate(r.Context(), s.who, kind, r.PathValue("name"), overlap)
		if err != nil {
			show(w, r, s, err, nil)
			return
		}
		c.showSecret(w, s, title, rotated, secretView{Secret: secret, Old: old})
	}
}

// end returns the handler of the form that revokes or removes a credential. The handler first shows
// the question ask on a page that asks for confirmation. After the operation it shows the text
// notice, on the page that lists the credentials. In both texts it inserts the holder of the
// credential: for NAME in ask, and for %s in notice. If the operation is refused, the handler
// answers with show.
func (c *Console) end(kind access.Kind, ask question, notice string, show listing) handler {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		if holder, ok := c.Ops.Holder(kind, r.PathValue("name")); ok && !c.sure(w, s, r, ask.about(holder, kind)) {
			return
		}
		ended, err := c.Ops.End(r.Context(), s.who, kind, r.PathValue("name"))
		if err != nil {
			show(w, r, s, err, nil)
			return
		}
		c.done(w, r, s, "/"+listOf(kind), fmt.Sprintf(notice, holderOf(ended)))
	}
}

// change returns the handler of the form that changes a token or a source, except its vehicles. If
// the form or the operation is refused, the handler answers with show.
func (c *Console) change(kind access.Kind, show listing) handler {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		to, err := c.changeOf(r.PostForm)
		if err == nil {
			_, err = c.Ops.ChangeCredential(r.Context(), s.who, kind, r.PathValue("name"), to)
		}
		if err != nil {
			show(w, r, s, err, r.PostForm)
			return
		}
		c.done(w, r, s, "/"+listOf(kind)+"/"+r.PathValue("name"), "The "+kind.Policy().Noun+" is changed.")
	}
}

// grant returns the handler of the form that changes the vehicles of a token or a source. The form
// selects all vehicles or gives a list of them. For a token, it can also give vehicles to add and
// vehicles to remove. If the form or the operation is refused, the handler answers with show.
func (c *Console) grant(kind access.Kind, show listing) handler {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		form := r.PostForm
		name, all := r.PathValue("name"), form.Get("all") != ""
		vehicles, err := access.AllVehicles(), error(nil)
		var lists [2][]vehicle.ID
		for i, field := range []string{"add", "remove"} {
			if strings.TrimSpace(form.Get(field)) != "" && err == nil {
				var list access.Vehicles
				list, err = parseVehicles(form.Get(field))
				lists[i] = slices.Collect(list.Sorted())
			}
		}
		if !all && form.Has("only") {
			vehicles, err = parseVehicles(form.Get("only"))
		}
		switch {
		case err != nil:
		case all && len(lists[0])+len(lists[1]) > 0:
			err = errors.New("choose all vehicles, or list the vehicles to add and to remove")
		case all || form.Has("only"):
			if holder, ok := c.Ops.Holder(kind, name); all && ok && !c.sure(w, s, r, grantAll[kind].about(holder, kind)) {
				return
			}
			_, err = c.Ops.ChangeCredential(r.Context(), s.who, kind, name, access.Change{Vehicles: &vehicles})
		case kind == access.TokenKind:
			_, err = c.Ops.GrantToken(r.Context(), s.who, name, lists[0], lists[1])
		default:
			err = errors.New("name the vehicles, or choose all")
		}
		if err != nil {
			show(w, r, s, err, form)
			return
		}
		c.done(w, r, s, "/"+listOf(kind)+"/"+name, "The vehicles of the "+kind.Policy().Noun+" are changed.")
	}
}

// changeOf parses the form that changes a token or a source, and returns the change. A field that
// still has the value that the page showed is not part of the change. If such a field were part of
// the change, it would undo what another operator has changed in the field in the meantime. If no
// field was changed, changeOf returns an error that says so.
func (c *Console) changeOf(form url.Values) (to access.Change, err error) {
	if text := strings.TrimSpace(form.Get("rate")); text != form.Get("rate-was") {
		rate, err := access.ParseRate(text)
		if err != nil {
			return to, err
		}
		to.Rate = &rate
	}
	if form.Get("days") != "" {
		expires, err := c.expiryOf(form)
		if err != nil {
			return to, err
		}
		to.Expires = &expires
	}
	if strict := form.Get("strict"); strict != form.Get("strict-was") {
		to.Strict = new(strict != "")
	}
	if to == (access.Change{}) {
		return to, errors.New("nothing to change: the form is the same as before")
	}
	return to, nil
}

// expiryOf returns the time at which a token or a source will expire: as many days from now as the
// form says, 1 to 3,650. If the form says "never", expiryOf returns the zero time. Any other text
// is an error.
func (c *Console) expiryOf(form url.Values) (time.Time, error) {
	if form.Get("days") == "never" {
		return time.Time{}, nil
	}
	days, err := strconv.Atoi(form.Get("days"))
	if err != nil || days < 1 || days > 3650 {
		return time.Time{}, errors.New("choose when it expires")
	}
	return c.Now().Add(time.Duration(days) * 24 * time.Hour), nil
}

// question has the texts of a page that asks for confirmation before an operation that cannot be
// undone. Ask is the question, Then says what the operation does, and Do is the text of the button
// that confirms it.
type question struct {
	Ask, Then, Do string
	Back          string // the page to return to if the answer is no
}

// about returns the question with NAME replaced by the holder of a credential. If the operator
// answers no, the page returns to the list of the credentials of the kind.
func (q question) about(holder string, kind access.Kind) question {
	name := func(text string) string { return strings.ReplaceAll(text, "NAME", holder) }
	return question{name(q.Ask), name(q.Then), name(q.Do), "/" + listOf(kind)}
}

// grantAll is the question that is asked before a list of vehicles is replaced by all vehicles.
var grantAll = map[access.Kind]question{
	access.TokenKind: {Ask: "Let the token of NAME see all vehicles?",
		Then: "It then sees every vehicle, present and future. The present list is not kept.",
		Do:   "Let it see all vehicles"},
	access.SourceKind: {Ask: "Let NAME send telemetry for all vehicles?",
		Then: "It may then send telemetry for every vehicle, present and future. The present list is not kept.",
		Do:   "Let it send for all vehicles"},
}

var (
	revokeToken = question{Ask: "Revoke the token of NAME?",
		Then: "Queries with it are refused from then on. It stays revoked.", Do: "Revoke it"}
	removeSource = question{Ask: "Remove the source NAME?",
		Then: "Its telemetry is refused from then on. A source of the same name gets another key.", Do: "Remove NAME"}
	removeOperator = question{Ask: "Remove the operator NAME?", Then: "Their key and their sessions end at once.",
		Do: "Remove NAME"}
	replaceKey = question{
		Ask: "Replace the admin key?", Then: "The present key ends at once, and with it the sessions that it " +
			"opened. Scripts that have it need the new one.",
		Do: "Replace the admin key", Back: "/operators",
	}
	endOldSecret = question{
		Ask:  "End the old secret of NAME at once?",
		Then: "It is refused from then on. Programs that use it do not work until they have the new one.",
		Do:   "Rotate: a new secret",
	}
)

// confirmView is the page that asks a question before an operation is carried out. It contains the
// submitted form as hidden fields, which are submitted again with the answer yes.
type confirmView struct {
	question
	Path   string // where the form is sent
	Fields url.Values
}

// sure reports whether the operator has confirmed the submitted form. If not, sure answers the
// request with a page that asks the question and contains the form, and returns false.
func (c *Console) sure(w http.ResponseWriter, s *session, r *http.Request, q question) bool {
	if r.PostForm.Get("sure") == "yes" {
		return true
	}
	section, _, _ := strings.Cut(strings.TrimPrefix(q.Back, "/"), "/")
	v := confirmView{q, r.URL.Path, refill(r.PostForm)}
	c.showTo(w, s, http.StatusOK, "confirm", page{Title: q.Ask, Section: section, Data: v})
	return false
}

// listOf returns the name of the list of a kind of credential as in paths, such as "tokens".
func listOf(kind access.Kind) string { return kind.Policy().Noun + "s" }

// holderOf returns the developer of a token, or the name of any other credential.
func holderOf(c access.Credential) string { return cmp.Or(c.Developer, c.Name) }

// secretView is the page that shows a new secret, only once.
type secretView struct {
	What, Name string // the kind and the holder, such as "token" and its developer
	ID         string // only of a token
	Secret     string
	Old        string // what happens to the replaced secret; empty: there was none
	Back       string // path of the list of this kind of credential
	Query      string // an example request; empty: none
	Telemetry  bool   // the secret is a key for the ingest listener
	Login      bool   // the secret is a key for the console
}

// showSecret answers with the page that shows the new secret of a credential.
func (c *Console) showSecret(w http.ResponseWriter, s *session, title string, of access.Credential, v secretView) {
	list := listOf(of.Kind)
	v.What, v.Name, v.Back = of.Kind.Policy().Noun, holderOf(of), "/"+list
	v.Telemetry, v.Login = of.Kind == access.SourceKind, of.Kind == access.OperatorKind
	if of.Developer != "" {
		v.ID = of.Name
	}
	c.showTo(w, s, http.StatusCreated, "secret", page{Title: title, Section: list, Data: v})
}

// once reports whether a form is submitted for the first time. If not, it answers the request with
// an error page with the status 409.
func (c *Console) once(w http.ResponseWriter, r *http.Request, s *session, kind access.Kind) bool {
	if c.sessions.first(r.PostForm.Get("mark")) {
		return true
	}
	back := listOf(kind)
	c.fail(w, s, "Already done", ops.Refuse(http.StatusConflict,
		"this form was sent before, so nothing was done: go to %s", strings.ToUpper(back[:1])+back[1:]))
	return false
}

// overlapOf returns the time for which a replaced secret stays valid. The form gives it as a number
// of hours, from 0 to [access.MaxOverlap]. Any other text is an error.
func overlapOf(form url.Values) (time.Duration, error) {
	hours, err := strconv.Atoi(form.Get("overlap"))
	d := time.Duration(hours) * time.Hour
	if err != nil || hours > 24*365 || access.CheckOverlap(d) != nil {
		return 0, fmt.Errorf("choose how long the old secret stays valid")
	}
	return d, nil
}

func oldInWords(overlap time.Duration) string {
	if overlap == 0 {
		return "The old one has ended."
	}
	return "The old one stays valid for another " + inwords.Duration(overlap) + "."
}

// sampleVehicle returns a vehicle that the token covers, for an example request. If the token
// covers all vehicles or none, it returns the placeholder "VID".
func sampleVehicle(t access.Credential) vehicle.ID {
	for id := range t.Vehicles.Sorted() {
		return id
	}
	return "VID"
}
