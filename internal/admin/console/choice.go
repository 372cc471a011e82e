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

// chooser says which entries of a list a request asks for, and in which order. The template of each
// list has its values of State and Sort.
type chooser struct {
	Find        string
	State, Sort string
	What, Path  string // of the list, such as "tokens" and /s/ABC/tokens
}

func chooserOf(r *http.Request, s *session, list string) chooser {
	q := r.URL.Query()
	return chooser{strings.TrimSpace(q.Get("find")), q.Get("state"), q.Get("sort"), list, s.at("/" + list)}
}

const listed = 25 // entries on a page

type paging struct {
	From, To, Of   int
	Previous, Next string // empty: none
}

// page returns the page in the URL, or the nearest that exists.
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

const expiringSoon = 14 * 24 * time.Hour

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
