package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// choice holds the filters and the order that a reader has chosen for a list.
type choice struct {
	Find  string // text in the name, ignoring case
	State string // empty: any
	Sort  string // one of the Sorts of the chooser
}

// choiceOf parses the choice in a URL.
func choiceOf(r *http.Request) choice {
	q := r.URL.Query()
	return choice{strings.TrimSpace(q.Get("find")), q.Get("state"), q.Get("sort")}
}

// address returns the path of the list (the parameter list) with the chosen filters and order as
// URL parameters. The path ends so that the caller can append the page number to it.
func (c choice) address(list string) string {
	q := url.Values{}
	for name, value := range map[string]string{"find": c.Find, "state": c.State, "sort": c.Sort} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return list + "?" + strings.TrimPrefix(q.Encode()+"&page=", "&")
}

// finds reports whether one of the names contains the text in Find, ignoring case.
func (c choice) finds(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(c.Find))
	})
}

// Times for the parameter none of compareTimes: before and after all other times.
var longAgo, farAhead = time.Time{}, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// compareTimes compares two times for sorting: the result is negative if a is earlier than b, 0 if
// they are equal, and positive if a is later. The time none is used in place of a nil time.
func compareTimes(a, b *time.Time, none time.Time) int {
	return cmp.Or(a, &none).Compare(*cmp.Or(b, &none))
}

// listed is the maximum number of records on a page of a list.
const listed = 25

// chooser is the form with which a list is filtered and sorted.
type chooser struct {
	choice
	Path          string   // path of the list
	What          string   // name of the listed records, such as "tokens"
	Names         string   // description of the names in which Find is searched
	States, Sorts []option // empty: no such field
}

// option is one value of a selection field.
type option struct{ Value, Text string }

// of returns a copy of the form for one request. The copy shows the filters and the order in the
// request's URL, and its paths are those of the session s.
func (c chooser) of(r *http.Request, s *session) chooser {
	c.choice, c.Path = choiceOf(r), s.at(c.Path)
	return c
}

// page returns the navigation for the page that the request r asks for. The parameter named "of" is
// the number of records in the list. If the list has fewer pages, the navigation is that of the
// last page.
func (c chooser) page(r *http.Request, of int) paging {
	return newPaging(c.address(c.Path), pageNumber(r), listed, of)
}
