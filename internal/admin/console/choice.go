package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

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

// address is that of the chosen records, without the page's number.
func (c choice) address(list string) string {
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

// chooser is the form that chooses among the records of a list.
type chooser struct {
	choice
	Path          string   // of the list
	What          string   // is chosen
	Names         string   // that are looked through
	States, Sorts []option // none: there is no such choice
}

// option is one value of a choice.
type option struct{ Value, Text string }

// of is the form with the choice that a request makes.
func (c chooser) of(r *http.Request, s *session) chooser {
	c.choice, c.Path = choiceOf(r), s.at(c.Path)
	return c
}

// page is the page that a request asks for, of so many records.
func (c chooser) page(r *http.Request, of int) paging {
	return newPaging(c.address(c.Path), pageNumber(r), listed, of)
}
