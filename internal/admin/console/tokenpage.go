package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/ops"
	"carstate/internal/vehicle"
)

// expiringSoon is how long before its end a token is marked.
const expiringSoon = 7 * 24 * time.Hour

type tokensView struct {
	Rows []ops.TokenRecord
	Page paging
	Form url.Values // what was written, if it was refused
	Soon int        // how many end soon
}

func (c *Console) tokensPage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showTokens(w, r, s, http.StatusOK, "", nil)
}

func (c *Console) showTokens(w http.ResponseWriter, r *http.Request, s *session, status int, problem string, form url.Values) {
	all := c.Ops.Tokens()
	slices.Reverse(all) // the newest first
	v := tokensView{Form: refill(form), Page: newPaging("/tokens?page=", pageNumber(r), listed, len(all))}
	now := c.Now()
	for _, t := range all {
		if stateOf(t, now) == "expiring" {
			v.Soon++
		}
	}
	for _, t := range all[v.Page.From-1 : v.Page.To] {
		if row, err := c.Ops.Token(t.ID); err == nil {
			v.Rows = append(v.Rows, row)
		}
	}
	c.showTo(w, s, status, "tokens", page{Title: "Tokens", Section: "tokens", Problem: problem, Data: v})
}

// stateOf is "active", "expiring", "expired" or "revoked".
func stateOf(t ops.TokenSummary, now time.Time) string {
	state := t.State(now)
	if state == "active" && t.State(now.Add(expiringSoon)) != state {
		return "expiring"
	}
	return state
}

func sum(calls ops.CallCounts) (n int64) {
	for _, outcomes := range calls.Calls {
		for _, count := range outcomes {
			n += count
		}
	}
	return n
}

// vehiclesInWords names a few vehicles, and counts more.
func vehiclesInWords(v ops.VehicleList) string {
	if v.All() {
		return "all vehicles"
	}
	if v.Len() > 3 {
		return grouped(v.Len()) + " vehicles"
	}
	var names []string
	for id := range v.Sorted() {
		names = append(names, string(id))
	}
	return strings.Join(names, ", ")
}

// maxTokensThatSee bounds what a vehicle's page lists.
const maxTokensThatSee = 20

// secretView shows a secret, this once.
type secretView struct {
	What, Name string // "token" of whom, "source" called what
	ID         string
	Secret     string
	Old        string // what became of the secret that was replaced; "": there was none
	Back       string // the list that it belongs to
	Query      string // a line to paste; "": none
	Telemetry  bool   // it opens the ingest listener
	Login      bool   // it opens the console
}

// once reads a form that must not be sent twice, and answers if there is
// something wrong with it.
func (c *Console) once(w http.ResponseWriter, r *http.Request, s *session, limit int64, back string) bool {
	switch {
	case !parseForm(w, r, limit):
		c.fail(w, s, http.StatusRequestEntityTooLarge, "Not done", "the form is too long: a list of more than some 40,000 vehicles goes by the command line, --vehicles @FILE")
		return false
	case !c.sessions.first(r.PostForm.Get("mark")):
		c.fail(w, s, http.StatusConflict, "Already done", "this form was sent before, and nothing was done again: go to "+back)
		return false
	}
	return true
}

func (c *Console) issueToken(w http.ResponseWriter, r *http.Request, s *session) {
	if !c.once(w, r, s, largeForm, "Tokens") {
		return
	}
	request, err := c.tokenRequest(r.PostForm)
	if err != nil {
		c.showTokens(w, r, s, http.StatusBadRequest, err.Error(), r.PostForm)
		return
	}
	t, secret, err := c.Ops.IssueToken(r.Context(), s.who, request)
	if err != nil {
		c.showTokens(w, r, s, statusOf(err), err.Error(), r.PostForm)
		return
	}
	v := secretView{What: "token", Name: t.Developer, ID: t.ID, Secret: secret, Back: "/tokens"}
	if c.QueryURL != "" {
		v.Query = fmt.Sprintf("curl -G %s/api/ic/if_dt_tflow_car_driving_state -d access_token=%s -d vid=%s", c.QueryURL, secret, sampleVehicle(t))
	}
	c.showTo(w, s, http.StatusCreated, "secret", page{Title: "Token issued", Section: "tokens", Data: v})
}

// sampleVehicle is one that the token sees.
func sampleVehicle(t ops.TokenRecord) vehicle.ID {
	for id := range t.Vehicles.Sorted() {
		return id
	}
	return "VID"
}

// tokenRequest reads the form of a new token.
func (c *Console) tokenRequest(form url.Values) (r access.TokenRequest, err error) {
	r.Developer = strings.TrimSpace(form.Get("developer"))
	if r.Operations, err = access.ParseOperations(form["operation"]); err != nil {
		return r, err
	}
	switch form.Get("scope") {
	case "all":
		r.Vehicles = access.AllVehicles()
	case "sandbox":
		r.Sandbox = true
	case "list":
		if r.Vehicles, err = parseVehicles(form.Get("vehicles")); err != nil {
			return r, err
		}
	default:
		return r, fmt.Errorf("choose which vehicles the token sees")
	}
	if r.Rate, err = access.ParseRate(strings.TrimSpace(form.Get("rate"))); err != nil {
		return r, err
	}
	days, err := strconv.Atoi(form.Get("days"))
	switch {
	case form.Get("days") == "never":
	case err != nil || days < 1 || days > 3650:
		return r, fmt.Errorf("choose when the token expires")
	default:
		r.Expires = c.Now().Add(time.Duration(days) * 24 * time.Hour)
	}
	return r, nil
}

func (c *Console) rotateToken(w http.ResponseWriter, r *http.Request, s *session) {
	if !c.once(w, r, s, smallForm, "Tokens") {
		return
	}
	overlap, err := overlapOf(r.PostForm)
	if err != nil {
		c.showTokens(w, r, s, http.StatusBadRequest, err.Error(), nil)
		return
	}
	t, secret, err := c.Ops.RotateToken(r.Context(), s.who, r.PathValue("id"), overlap)
	if err != nil {
		c.showTokens(w, r, s, statusOf(err), err.Error(), nil)
		return
	}
	v := secretView{What: "token", Name: t.Developer, ID: t.ID, Secret: secret, Old: oldInWords(overlap), Back: "/tokens"}
	c.showTo(w, s, http.StatusCreated, "secret", page{Title: "Token rotated", Section: "tokens", Data: v})
}

// overlapOf reads how long a replaced secret is to count, in hours.
func overlapOf(form url.Values) (time.Duration, error) {
	hours, err := strconv.Atoi(form.Get("overlap"))
	d := time.Duration(hours) * time.Hour
	if err != nil || hours > 24*365 || access.CheckOverlap(d) != nil {
		return 0, fmt.Errorf("choose how long the old secret counts")
	}
	return d, nil
}

func oldInWords(overlap time.Duration) string {
	if overlap == 0 {
		return "The old one has ended."
	}
	return "The old one counts for " + inWords(overlap) + " more."
}

func (c *Console) revokeToken(w http.ResponseWriter, r *http.Request, s *session) {
	t, err := c.Ops.RevokeToken(r.Context(), s.who, r.PathValue("id"))
	if err != nil {
		c.showTokens(w, r, s, statusOf(err), err.Error(), nil)
		return
	}
	c.done(w, r, s, "/tokens", "The token of "+t.Developer+" is revoked: queries with it are refused from now on.")
}
