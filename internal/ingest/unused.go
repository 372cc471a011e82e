package ingest

import (
	"fmt"
	"slices"
	"strings"

	"example.org/carstate/internal/access"
)

const maxUnused = 20 // pairs of signal and reason

type unusedValue struct {
	name []byte // valid until the next line
	why  *refusal
}

type unused struct {
	counts [access.SampleRefusals]int // by one of unusedKinds
	listed []unusedCount              // at most maxUnused
}

var unusedKinds = [...]access.Refusal{
	access.NotAvailable, access.Impossible, access.WrongType, access.Duplicate, access.OverLimit,
}

type unusedCount struct {
	Signal string `json:"signal"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// note allocates only for a new pair.
func (u *unused) note(v unusedValue) {
	u.counts[v.why.kind]++
	at := slices.IndexFunc(u.listed, func(c unusedCount) bool {
		return c.Signal == string(v.name) && c.Reason == v.why.text
	})
	if at >= 0 {
		u.listed[at].Count++
	} else if len(u.listed) < maxUnused {
		u.listed = append(u.listed, unusedCount{string(v.name), v.why.text, 1})
	}
}

func (u *unused) join(other *unused) {
	for kind, n := range other.counts {
		u.counts[kind] += n
	}
}

func (u *unused) total() (n int) {
	for _, k := range u.counts {
		n += k
	}
	return n
}

func (u *unused) inWords() string {
	var list []string
	for _, c := range u.listed {
		list = append(list, fmt.Sprintf("%s %s (%d)", c.Signal, c.Reason, c.Count))
	}
	if len(list) == 0 {
		return ""
	}
	return "not used: " + strings.Join(list, ", ")
}
