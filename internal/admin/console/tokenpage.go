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
	"carstate/internal/inwords"
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
	v := tokensView{Form: refill(form), Page: newPaging(s.root+"/tokens?page=", pageNumber(r), listed, len(all))}
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
		return inwords.Count(v.Len()) + " vehicles"
	}
	var names []string
	for id := range v.Sorted() {
		names = append(names, string(id))
	}
	return strings.Join(names, ", ")
}

// maxTokensThatSee bounds what a vehicle's page lists.
const maxTokensThatSee = 20

func (c *Console) issueToken(w http.ResponseWriter, r *http.Request, s *session) {
	if !c.once(w, r, s, largeForm, access.TokenKind) {
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
	query := ""
	if c.QueryURL != "" {
		query = fmt.Sprintf("curl -G %s/api/ic/if_dt_tflow_car_driving_state -d access_token=%s -d vid=%s", c.QueryURL, secret, sampleVehicle(t))
	}
	c.showSecret(w, s, "Token issued", t, secretView{Secret: secret, Query: query})
}

// sampleVehicle is one that the token sees.
func sampleVehicle(t access.Credential) vehicle.ID {
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
