package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
)

// chooser is the form with which a list of credentials is filtered and sorted.
type chooser struct {
	Names         string   // description of the names in which Find is searched
	States, Sorts []option // empty: no such field

	// The choice of a request, and where it is made:
	Find        string // text in the name, ignoring case
	State, Sort string // values of the options in States and Sorts
	What, Path  string // name of the listed records, such as "tokens", and path of the list
}

// option is one value of a selection field.
type option struct{ Value, Text string }

// of returns a copy of the form with the filters and the order in the request's URL.
func (c chooser) of(r *http.Request, s *session, list string) chooser {
	q := r.URL.Query()
	c.What, c.Path = list, s.at("/"+list)
	c.Find, c.State, c.Sort = strings.TrimSpace(q.Get("find")), q.Get("state"), q.Get("sort")
	return c
}

// listed is the maximum number of records on a page of a list.
const listed = 25

// paging is the navigation between the pages of a list.
type paging struct {
	From, To, Of   int    // numbers of the first and last record shown, and of all records
	Previous, Next string // addresses of pages; empty: none
}

// page returns the navigation of a list with a number of records, for the page in the URL or the
// nearest that exists.
func (c chooser) page(r *http.Request, of int) paging {
	last := max(1, (of+listed-1)/listed)
	number, err := strconv.Atoi(r.URL.Query().Get("page"))
	if number = min(number, last); err != nil || number < 1 {
		number = 1
	}
	at := func(number int) string {
		return address(c.Path, url.Values{"find": {c.Find}, "state": {c.State}, "sort": {c.Sort},
			"page": {strconv.Itoa(number)}})
	}
	p := paging{From: (number-1)*listed + 1, To: min(number*listed, of), Of: of}
	if number > 1 {
		p.Previous = at(number - 1)
	}
	if number < last {
		p.Next = at(number + 1)
	}
	return p
}

// apply returns the credentials that match the filters, in the chosen order. If no order is chosen,
// they keep the order that they have in all. apply changes all.
func (c chooser) apply(all []*access.Grant, now time.Time) []*access.Grant {
	all = slices.DeleteFunc(all, func(g *access.Grant) bool { return !c.selects(g, now) })
	slices.SortStableFunc(all, func(a, b *access.Grant) int { return c.compare(a, b, now) })
	return all
}

func (c chooser) selects(g *access.Grant, now time.Time) bool {
	find, state := strings.ToLower(c.Find), stateOf(&g.Credential, now)
	if !strings.Contains(strings.ToLower(g.Developer), find) && !strings.Contains(strings.ToLower(g.Name), find) {
		return false
	}
	switch c.State {
	case "", state:
		return true
	case "usable":
		return state == "active" || state == "expiring"
	case "unused":
		return g.Usage(now).LastUsed.IsZero()
	case "sandbox":
		return g.Sandbox()
	case "silent":
		return g.Seen().LastSeen.IsZero()
	case "refused":
		return !g.Seen().LastRefused.IsZero()
	case "ignored":
		return g.Seen().Ignored > 0
	}
	return false
}

// compare compares two credentials in the chosen order, with a result like that of [cmp.Compare].
func (c chooser) compare(a, b *access.Grant, now time.Time) int {
	switch c.Sort {
	case "name":
		return strings.Compare(strings.ToLower(a.Developer), strings.ToLower(b.Developer))
	case "newest":
		return b.Created.Compare(a.Created)
	case "used":
		return b.Usage(now).LastUsed.Compare(a.Usage(now).LastUsed)
	case "seen":
		return b.Seen().LastSeen.Compare(a.Seen().LastSeen)
	case "refused":
		return b.Seen().LastRefused.Compare(a.Seen().LastRefused)
	case "end":
		never := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
		return cmp.Or(a.Expires, never).Compare(cmp.Or(b.Expires, never))
	case "key":
		return cmp.Or(a.Rotated, a.Created).Compare(cmp.Or(b.Rotated, b.Created))
	}
	return 0
}

// expiringSoon is how long before its expiry a credential is marked as expiring.
const expiringSoon = 14 * 24 * time.Hour

// stateOf returns the state of a credential: "active", "expiring" (within expiringSoon), "expired",
// or "revoked" for a token and "removed" for another, even if it has also expired.
func stateOf(c *access.Credential, now time.Time) string {
	switch {
	case !c.Ended.IsZero():
		return c.Kind.Policy().End + "d"
	case c.Usable(now) != nil:
		return "expired"
	case c.Usable(now.Add(expiringSoon)) != nil:
		return "expiring"
	}
	return "active"
}
