package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/inwords"
	"carstate/internal/ops"
)

// expiringSoon is how long before its expiry a token or a source is marked as expiring.
const expiringSoon = 14 * 24 * time.Hour

// tokenRow is one token, as the list of tokens and the page of the token show it. The links in the
// list and in the page lead to paths that begin with Root.
type tokenRow struct {
	Root string // prefix of the session's paths
	ops.TokenRecord
}

// tokenView is the page of one token.
type tokenView struct {
	Token tokenRow
	Form  url.Values // contents of a refused form
}

// tokenChoices is the form that sorts and filters tokens.
var tokenChoices = chooser{
	Path: "/tokens", What: "tokens", Names: "Developer or id",
	States: []option{
		{"", "any"}, {"usable", "usable"}, {"expiring", "expires within 14 days"}, {"expired", "expired"},
		{"revoked", "revoked"},
		{"unused", "never used"}, {"sandbox", "sandbox"},
	},
	Sorts: []option{{"", "newest first"}, {"name", "developer"}, {"used", "used last"}, {"end", "expires first"}},
}

// tokens returns the tokens that match the filters, in the chosen order; without a chosen order,
// the newest is first. The parameter all must be sorted from the oldest to the newest; tokens
// changes it.
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
			return compareTimes(b.LastUsedAt, a.LastUsedAt, longAgo)
		case "end":
			return compareTimes(a.ExpiresAt, b.ExpiresAt, farAhead)
		}
		return 0
	})
	return all
}

func (c *Console) showTokens(w http.ResponseWriter, r *http.Request, s *session, err error, form url.Values) {
	all, now, soon := c.Ops.Tokens(), c.Now(), 0
	for _, t := range all {
		if stateOf(t, now) == "expiring" {
			soon++
		}
	}
	choose := func(x choice, all []ops.TokenSummary) []ops.TokenSummary { return x.tokens(all, now) }
	v := credentials(c, r, s, form, tokenChoices, all, choose, func(t ops.TokenSummary) (any, error) {
		token, err := c.Ops.Token(t.ID)
		return tokenRow{s.root, token}, err
	})
	v.Soon = soon
	c.showForm(w, s, err, "tokens", page{Title: "Tokens", Section: "tokens", Data: v})
}

// showToken answers with the page of the token whose ID is in the path. If there is no such token,
// it answers with the list of tokens and the problem. The parameters problem and form are those of
// a [listing].
func (c *Console) showToken(w http.ResponseWriter, r *http.Request, s *session, problem error, form url.Values) {
	token, err := c.Ops.Token(r.PathValue("name"))
	if err != nil {
		c.showTokens(w, r, s, err, nil)
		return
	}
	v := tokenView{tokenRow{s.root, token}, refill(form)}
	c.showForm(w, s, problem, "token", page{Title: "Token of " + token.Developer, Section: "tokens", Data: v})
}

// expiring is a token or a source.
type expiring interface{ State(now time.Time) string }

// stateOf returns the state of a token or a source at the time now: "active", "expiring", "expired"
// or, for a token, "revoked", for a source, "removed". A credential is expiring if it will expire
// within expiringSoon.
func stateOf(credential expiring, now time.Time) string {
	state := credential.State(now)
	if state == "active" && credential.State(now.Add(expiringSoon)) != state {
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

// vehiclesInWords returns a set of vehicles as text: "all vehicles", or the vids, separated by ",
// ". For more than three vehicles, it gives only their number. For no vehicle, the text is "".
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

// maxTokensThatSee is the maximum number of tokens that a vehicle's page lists.
const maxTokensThatSee = 20

// tokenRequest parses the form of a new token. If a field is missing or invalid, the error says how
// to correct it.
func (c *Console) tokenRequest(form url.Values) (r access.Request, err error) {
	r.Kind, r.Developer = access.TokenKind, strings.TrimSpace(form.Get("developer"))
	if r.Operations, err = access.ParseOperations(form["operation"]); err != nil {
		return r, err
	}
	switch form.Get("scope") {
	case "all":
		r.Vehicles = access.AllVehicles()
	case "sandbox":
		r.Kind = access.SandboxKind
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
	r.Expires, err = c.expiryOf(form)
	return r, err
}
