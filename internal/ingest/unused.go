package ingest

import (
	"fmt"
	"slices"
	"strings"

	"example.org/carstate/internal/access"
)

// maxUnused is the maximum number of pairs of signal and reason that a response lists.
const maxUnused = 20

// unusedValue is a value of a known signal that a line has and that is not used.
type unusedValue struct {
	name []byte // one of vehicle.SignalNames; valid until the next line
	why  *refusal
}

// unused holds the values of known signals that a batch has and that are not used.
type unused struct {
	counts [access.SampleRefusals]int // by the kind of the reason, one of unusedKinds
	listed []unusedCount              // distinct pairs of signal and reason, at most maxUnused
}

var unusedKinds = [...]access.Refusal{
	access.NotAvailable, access.Impossible, access.WrongType, access.Duplicate, access.OverLimit,
}

// unusedCount is how often a batch has a signal that is not used for a reason, in the response.
type unusedCount struct {
	Signal string `json:"signal"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// note counts a value. It allocates memory only if the pair of signal and reason is new.
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

// join adds the counts of another batch to u. The caller needs no list.
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

// inWords lists the values in one line, for the sender. If there are none, it returns "".
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
