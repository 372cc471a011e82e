package telemetry

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/carstate/internal/access"
)

const (
	maxRejections  = 1000
	maxIgnored     = 10 // distinct names
	maxIgnoredName = 80 // bytes; few VSS names have more than 64
	maxUnused      = 20 // pairs of signal and reason
)

var UnusedKinds = [...]access.Refusal{
	access.NotAvailable, access.Impossible, access.WrongType, access.Duplicate, access.OverLimit,
}

type Report struct {
	Accepted   int               `json:"accepted"`                 // also without a reading
	Rejected   []Rejection       `json:"rejected"`                 // the first maxRejections
	Total      int               `json:"rejected_total,omitempty"` // if more than Rejected
	Ignored    []string          `json:"ignored,omitempty"`        // distinct
	DidYouMean map[string]string `json:"did_you_mean,omitempty"`   // from an unknown name to a known one
	Unnamed    int               `json:"ignored_unnamed,omitempty"`
	Unused     []unusedCount     `json:"unused,omitempty"`
	Late       int               `json:"late,omitempty"`
}

type Rejection struct {
	Line   int    `json:"line"` // from 1, empty lines included
	Reason string `json:"reason"`
}

type unusedCount struct {
	Signal string `json:"signal"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

func (b *Batch) Answer() Report {
	r := b.Report
	r.Rejected = append([]Rejection{}, r.Rejected...) // not nil
	if total := b.RefusedTotal(); total > len(r.Rejected) {
		r.Total = total
	}
	r.DidYouMean = make(map[string]string)
	for _, n := range r.Ignored {
		if s, ok := similarSignal(n); ok {
			r.DidYouMean[n] = s
		}
	}
	return r
}

// InWords is the report without refused samples, or "" if it would be empty.
func (b *Batch) InWords() string {
	var parts, list []string
	for _, n := range b.Ignored {
		list = append(list, n+suggestion(n))
	}
	if b.Unnamed > 0 && len(list) > 0 {
		list = append(list, fmt.Sprintf("and %d more", b.Unnamed))
	} else if b.Unnamed > 0 {
		list = append(list, strconv.Itoa(b.Unnamed))
	}
	if len(list) > 0 {
		parts = append(parts, "unknown signals: "+strings.Join(list, ", "))
	}
	list = nil
	for _, c := range b.Unused {
		list = append(list, fmt.Sprintf("%s %s (%d)", c.Signal, c.Reason, c.Count))
	}
	if len(list) > 0 {
		parts = append(parts, "not used: "+strings.Join(list, ", "))
	}
	if b.Late > 0 {
		parts = append(parts, fmt.Sprintf("late samples: %d", b.Late))
	}
	return strings.Join(parts, "; ")
}

func (b *Batch) ignore(name []byte) {
	b.IgnoredTotal++
	switch {
	case slices.ContainsFunc(b.Ignored, func(n string) bool { return n == string(name) }):
	case len(b.Ignored) < maxIgnored && isShown(name):
		b.Ignored = append(b.Ignored, string(name))
	default:
		b.Unnamed++
	}
}

// isShown is true for a name like those of VSS and no likely secret: responses may be logged.
func isShown(name []byte) bool {
	const spelling = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
	return len(name) > 0 && len(name) <= maxIgnoredName && len(bytes.Trim(name, spelling)) == 0 &&
		!access.HoldsSecret(string(name))
}

type unusedValue struct {
	name []byte // valid until the next line
	why  *Refusal
}

func (b *Batch) noteUnused(v unusedValue) {
	b.UnusedByReason[v.why.Kind]++
	at := slices.IndexFunc(b.Unused, func(c unusedCount) bool {
		return c.Signal == string(v.name) && c.Reason == v.why.Text
	})
	if at >= 0 {
		b.Unused[at].Count++
	} else if len(b.Unused) < maxUnused {
		b.Unused = append(b.Unused, unusedCount{string(v.name), v.why.Text, 1})
	}
}

func suggestion(name string) string {
	if s, ok := similarSignal(name); ok {
		return " (did you mean " + s + "?)"
	}
	return ""
}

// Operators do not see the name, which may really be a value, such as a vid.
func errUnknown(name []byte) *Refusal {
	meant := " is unknown, and this source is strict: it may send only known signals"
	if !isShown(name) {
		return NewRefusal(access.UnknownSignal, "a signal"+meant)
	}
	meant = suggestion(string(name)) + meant
	return &Refusal{access.UnknownSignal, string(name) + meant, "a signal" + meant}
}

func errUnused(v unusedValue) *Refusal {
	return NewRefusal(v.why.Kind, string(v.name)+" "+v.why.Text+", and this source is strict")
}
