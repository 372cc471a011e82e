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
	"carstate/internal/vehicle"
)

// expiringSoon is how long before its end a token is marked.
const expiringSoon = 7 * 24 * time.Hour

// tokenRow is a token as the pages show it.
type tokenRow struct {
	ID, Developer string
	Operations    []string
	Vehicles      string
	Rate          string
	Sandbox       bool
	State         string // "active", "expiring", "expired" or "revoked"
	Created       time.Time
	Expires       time.Time // zero: never
	Ended         time.Time // when it was revoked
	EarlierUntil  time.Time // until when a replaced secret counts; zero: none does
	LastUsed      time.Time
	LastRefused   time.Time
	Reason        string
	Today, Month  int64 // calls
}

// Usable reports whether the token counts.
func (t tokenRow) Usable() bool { return t.State == "active" || t.State == "expiring" }

type tokensView struct {
	Rows []tokenRow
	Page paging
	Form url.Values // what was written, if it was refused
	Soon int        // how many end soon
}

func (c *Console) tokensPage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showTokens(w, r, s, http.StatusOK, "", nil)
}

func (c *Console) showTokens(w http.ResponseWriter, r *http.Request, s *session, status int, problem string, form url.Values) {
	all := c.Tokens.List()
	slices.Reverse(all) // the newest first
	v := tokensView{Form: refill(form), Page: newPaging("/tokens?page=", pageNumber(r), listed, len(all))}
	now := c.Now()
	for i, g := range all {
		if stateOf(&g.Token, now) == "expiring" {
			v.Soon++
		}
		if i+1 >= v.Page.From && i+1 <= v.Page.To {
			v.Rows = append(v.Rows, c.tokenRow(g, now))
		}
	}
	c.showTo(w, s, status, "tokens", page{Title: "Tokens", Section: "tokens", Problem: problem, Data: v})
}

func (c *Console) tokenRow(g *access.Grant, now time.Time) tokenRow {
	used := c.Tokens.Usage(g.ID, now)
	row := tokenRow{
		ID: g.ID, Developer: g.Developer, Operations: g.Operations.Names(), Vehicles: vehiclesInWords(g.Vehicles), Rate: g.Rate.String(),
		Sandbox: g.Sandbox, State: stateOf(&g.Token, now), Created: g.Created, Expires: g.Expires, Ended: g.Revoked,
		LastUsed: used.LastUsed, LastRefused: used.LastRefused,
		Today: sum(used.Since(access.DayOf(now))), Month: sum(used.Since(access.DayOf(now) - access.UsageDays + 1)),
	}
	if g.Sandbox {
		row.Vehicles = "of the sandbox"
	}
	if !used.LastRefused.IsZero() {
		row.Reason = used.Reason.String()
	}
	for _, e := range g.Earlier {
		if e.Until.After(now) && e.Until.After(row.EarlierUntil) {
			row.EarlierUntil = e.Until
		}
	}
	return row
}

func stateOf(t *access.Token, now time.Time) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked"
	case t.Usable(now) != nil:
		return "expired"
	case t.Usable(now.Add(expiringSoon)) != nil:
		return "expiring"
	}
	return "active"
}

func sum(calls access.Calls) (n int64) {
	for _, outcomes := range calls {
		for _, count := range outcomes {
			n += count
		}
	}
	return n
}

// vehiclesInWords names a few vehicles, and counts more.
func vehiclesInWords(v access.Vehicles) string {
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

// tokensThatSee lists the tokens that a vehicle is granted to.
func (c *Console) tokensThatSee(id vehicle.ID) (rows []tokenRow, more int) {
	now := c.Now()
	for _, g := range c.Tokens.List() {
		switch {
		case g.Sandbox || g.Usable(now) != nil || !g.Vehicles.Include(id):
		case len(rows) == maxTokensThatSee:
			more++
		default:
			rows = append(rows, c.tokenRow(g, now))
		}
	}
	return rows, more
}

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
	t, secret, err := c.Deeds.IssueToken(r.Context(), s.who, request)
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
func sampleVehicle(t access.Token) vehicle.ID {
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
	t, secret, err := c.Deeds.RotateToken(r.Context(), s.who, r.PathValue("id"), overlap)
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
	t, err := c.Deeds.RevokeToken(r.Context(), s.who, r.PathValue("id"))
	if err != nil {
		c.showTokens(w, r, s, statusOf(err), err.Error(), nil)
		return
	}
	c.done(w, r, s, "/tokens", "The token of "+t.Developer+" is revoked: queries with it are refused from now on.")
}
