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
const expiringSoon = 14 * 24 * time.Hour

type tokensView struct {
	Rows   []ops.TokenRecord
	Page   paging
	Choice choice
	Form   url.Values // what was written, if it was refused
	Soon   int        // how many end soon
	All    int        // how many there are
}

// choice is which records of a list are asked for, and in which order.
type choice struct {
	Find  string // in their names, whatever the case
	State string // "": any
	Sort  string // "": the newest first
}

// choiceOf reads the choice in an address.
func choiceOf(r *http.Request) choice {
	q := r.URL.Query()
	return choice{strings.TrimSpace(q.Get("find")), q.Get("state"), q.Get("sort")}
}

// Path is the address of the chosen records, without the page's number.
func (c choice) Path(list string) string {
	q := url.Values{}
	for name, value := range map[string]string{"find": c.Find, "state": c.State, "sort": c.Sort} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return list + "?" + strings.TrimPrefix(q.Encode()+"&page=", "&")
}

// finds reports whether one of some names holds what is looked for.
func (c choice) finds(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(c.Find))
	})
}

// tokens are the tokens that are chosen of all, the oldest first.
func (c choice) tokens(all []ops.TokenSummary, now time.Time) []ops.TokenSummary {
	slices.Reverse(all)
	all = slices.DeleteFunc(all, func(t ops.TokenSummary) bool {
		state := stateOf(t, now)
		is := c.State == "" || c.State == state || c.State == "usable" && (state == "active" || state == "expiring") ||
			c.State == "unused" && t.LastUsedAt == nil || c.State == "sandbox" && t.Sandbox
		return !is || !c.finds(t.Developer, t.ID)
	})
	slices.SortStableFunc(all, func(a, b ops.TokenSummary) int {
		switch c.Sort {
		case "name":
			return strings.Compare(strings.ToLower(a.Developer), strings.ToLower(b.Developer))
		case "used":
			return -compareTimes(a.LastUsedAt, b.LastUsedAt, -1)
		case "end":
			return compareTimes(a.ExpiresAt, b.ExpiresAt, 1)
		}
		return 0
	})
	return all
}

// compareTimes compares times of which nil is before (-1) or behind (1) all others.
func compareTimes(a, b *time.Time, none int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return none
	case b == nil:
		return -none
	}
	return a.Compare(*b)
}

func (c *Console) tokensPage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showTokens(w, r, s, http.StatusOK, "", nil)
}

func (c *Console) showTokens(w http.ResponseWriter, r *http.Request, s *session, status int, problem string, form url.Values) {
	all, now := c.Ops.Tokens(), c.Now()
	v := tokensView{Form: refill(form), Choice: choiceOf(r), All: len(all)}
	for _, t := range all {
		if stateOf(t, now) == "expiring" {
			v.Soon++
		}
	}
	all = v.Choice.tokens(all, now)
	v.Page = newPaging(v.Choice.Path(s.root+"/tokens"), pageNumber(r), listed, len(all))
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
