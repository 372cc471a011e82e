// Package row says what a row of the torture is: a way to break the service, what
// must hold meanwhile, and the defects that the row must see to be believed.
package row

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"carstate/internal/nodeprocess"
)

// Row is one row of the torture.
type Row struct {
	Number int
	Name   string // on the command line: "kill"
	Title  string // in the document: "Killed at a random moment"
	// Text is the row's section of the document, Markdown as a text/template: what is
	// promised, how that is tried and judged, what it cannot see, {{.Results}}, and
	// what the row brought to light. Fields are what else the text names.
	Text   string
	Fields map[string]any

	Counts string // what Count counts: "kills"
	CI     int    // how many `make torture` does
	Long   int    // and how many with -long
	// FlagOnly rows run only if they are named: they take hours.
	FlagOnly bool

	Controls []Control
	// Tests is the package whose tests the row runs, by its directory: they are built in
	// place of carstate. Called on its own, such a row does as much as with -long.
	Tests string
	// Needs reports in one line what this machine lacks for the row, or nil.
	Needs func() error
	// Run does the row: it tells the attempt what it offered and found. An error
	// says that the row could not be done, not that the service failed.
	Run func(ctx context.Context, a *Attempt) error
}

// Control is a deliberately broken build that the row must see.
type Control struct {
	Defect string // its patch is torture/defects/Defect.patch
	Says   string // what the broken build does: "answers before the samples are stored"
	// By are the findings that catch it, of which one must come: as the attempt words
	// them, kind and all, with * for what varies. They are what the defect does, and
	// nothing else: what else is found proves nothing, and the attempt goes on.
	By    []string
	Count int // at most so many; 0: as many as without a defect
}

// caughtBy reports whether a finding is one of those that catch the control.
func (c *Control) caughtBy(finding string) bool {
	return slices.ContainsFunc(c.By, func(wanted string) bool {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(wanted), `\*`, `.*`)
		return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(finding)
	})
}

// Control finds the control of a defect; nil if the row has none.
func (r *Row) Control(d string) *Control {
	if i := slices.IndexFunc(r.Controls, func(c Control) bool { return c.Defect == d }); i >= 0 {
		return &r.Controls[i]
	}
	return nil
}

// Attempt is one run of a row. Safe for concurrent use.
type Attempt struct {
	Seed   uint64 // all that is random comes from it
	Count  int
	Binary string // the carstate under test, or the tests of [Row.Tests]
	Dir    string // a directory of the attempt's own, on a disk; removed afterwards
	// Control says which defect the binary has, and what must be found;
	// nil for none. It ends with the first finding that catches it.
	Control *Control
	Logf    func(format string, args ...any)

	// Stop ends the attempt's context; what catches the control calls it.
	Stop context.CancelFunc

	mu sync.Mutex
	o  Outcome
}

// Outcome is what an attempt came to.
type Outcome struct {
	Offered      int64    `json:"offered"`
	Acknowledged int64    `json:"acknowledged"`
	Lost         int64    `json:"lost"`  // acknowledged and not there
	Wrong        int64    `json:"wrong"` // answers, refusals and behaviour that must not be
	Figures      []Figure `json:"figures,omitempty"`
	// Findings are the first few that were lost or wrong, a line each.
	Findings []string `json:"findings,omitempty"`
	// CaughtBy is the finding that caught the control; "" if none did.
	CaughtBy string `json:"caught_by,omitempty"`
	// Undone is why the row could not be done, or not to its end; "" if it was.
	Undone string `json:"undone,omitempty"`
}

// NotDone says why the row could not be done, or not to its end. What was found
// stays.
func (o *Outcome) NotDone(err error) {
	o.Undone = "could not be done: "
	if o.Found() {
		o.Undone = "ended early: "
	}
	o.Undone += strings.ReplaceAll(err.Error(), "\n", "; ")
	o.Findings = append(o.Findings, o.Undone)
}

// Figure is one number besides those.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Aim   string  `json:"aim,omitempty"` // as a person would write it: "≤ 5 s"
	Met   *bool   `json:"met,omitempty"` // nil without an aim
}

// Found reports whether something was lost or wrong or an aim was missed.
func (o *Outcome) Found() bool {
	for _, f := range o.Figures {
		if f.Met != nil && !*f.Met {
			return true
		}
	}
	return o.Lost != 0 || o.Wrong != 0
}

// Passed reports whether the row was done to its end and nothing was found.
func (o *Outcome) Passed() bool { return o.Undone == "" && !o.Found() }

// maxFindings bounds what is kept of the findings' texts.
const maxFindings = 20

// Offered counts what was sent: samples, requests, triples.
func (a *Attempt) Offered(n int) { a.change(func(o *Outcome) { o.Offered += int64(n) }) }

// Acknowledged counts what the service answered for.
func (a *Attempt) Acknowledged(n int) { a.change(func(o *Outcome) { o.Acknowledged += int64(n) }) }

// Lost says that something was acknowledged and is not there.
func (a *Attempt) Lost(format string, args ...any) {
	a.found(func(o *Outcome) { o.Lost++ }, "lost: "+fmt.Sprintf(format, args...))
}

// Wrong says that the service did what it must not do.
func (a *Attempt) Wrong(format string, args ...any) {
	a.found(func(o *Outcome) { o.Wrong++ }, "wrong: "+fmt.Sprintf(format, args...))
}

// Figure takes in a number that has no aim.
func (a *Attempt) Figure(name string, value float64, unit string) {
	a.change(func(o *Outcome) { o.Figures = append(o.Figures, Figure{Name: name, Value: value, Unit: unit}) })
}

// Aimed takes in a number that has an aim. To miss it is a finding.
func (a *Attempt) Aimed(name string, value float64, unit, aim string, met bool) {
	f := Figure{Name: name, Value: value, Unit: unit, Aim: aim, Met: &met}
	take := func(o *Outcome) { o.Figures = append(o.Figures, f) }
	if met {
		a.change(take)
		return
	}
	a.found(take, fmt.Sprintf("missed: %s is %g %s, wanted %s", name, value, unit, aim))
}

func (a *Attempt) found(count func(*Outcome), line string) {
	caught, kept := a.Control != nil && a.Control.caughtBy(line), false
	a.change(func(o *Outcome) {
		count(o)
		if kept = len(o.Findings) < maxFindings; kept {
			o.Findings = append(o.Findings, line)
		}
		if caught && o.CaughtBy == "" {
			o.CaughtBy = line
		}
	})
	if kept || caught {
		a.Logf("%s", line)
	}
	if caught {
		a.Stop()
	}
}

func (a *Attempt) change(f func(*Outcome)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.o)
}

// Outcome is what the attempt has come to so far.
func (a *Attempt) Outcome() Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.o
	o.Figures = append([]Figure(nil), o.Figures...)
	o.Findings = append([]string(nil), o.Findings...)
	return o
}

// Pause waits, or ends with the context.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Every does something again and again, so often, until stop is called, which returns
// once it is over.
func Every(ctx context.Context, d time.Duration, do func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ; ctx.Err() == nil; Pause(ctx, d) {
			do()
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// Percentile sorts durations and returns the one below which a part q of them is.
func Percentile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// Watch looks at what a node takes, ten times a second. What it returns ends that and
// tells the most descriptors and bytes of memory.
func Watch(ctx context.Context, n *nodeprocess.Node) (peaks func() (files int, memory int64)) {
	var files int
	var memory int64
	stop := Every(ctx, 100*time.Millisecond, func() {
		f, err1 := n.Descriptors()
		m, err2 := n.Resident()
		if err1 == nil && err2 == nil {
			files, memory = max(files, f), max(memory, m)
		}
	})
	return func() (int, int64) {
		stop()
		return files, memory
	}
}
