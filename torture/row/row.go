// Package row defines the rows of the torture. Each breaks the service in one way and checks the
// promises that must hold nevertheless.
package row

import (
	"context"
	"embed"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/defects"
)

type Row struct {
	Name     string
	Counts   string // the unit of [Attempt.Count]: "kills"
	CI       int    // the Count in `make torture`
	FlagOnly bool
	Controls []defects.Control
	Tests    string // the package whose tests are run in place of carstate
	// An error means that the row could not be completed, not that the service failed.
	Run func(ctx context.Context, a *Attempt)
}

func (r *Row) Control(d string) *defects.Control {
	if i := slices.IndexFunc(r.Controls, func(c defects.Control) bool { return c.Defect == d }); i >= 0 {
		return &r.Controls[i]
	}
	return nil
}

// Attempt is one run of a row, safe for concurrent use.
type Attempt struct {
	Seed   uint64
	Count  int
	Binary string // the carstate under test, or the tests of [Row.Tests]
	Dir    string
	// With a Control, the attempt ends with the first finding that proves its defect.
	Control *defects.Control
	Logf    func(format string, args ...any)

	Stop context.CancelFunc

	mu sync.Mutex
	o  Outcome
}

type Outcome struct {
	Offered      int64    `json:"offered"`
	Acknowledged int64    `json:"acknowledged"`
	Lost         int64    `json:"lost"`  // acknowledged and missing
	Wrong        int64    `json:"wrong"` // answers, refusals and behaviour
	Figures      []Figure `json:"figures,omitempty"`
	Findings     []string `json:"findings,omitempty"`
	CaughtBy     string   `json:"caught_by,omitempty"`
	Undone       string   `json:"undone,omitempty"`
}

func (o *Outcome) NotDone(err error) {
	o.Undone = "could not be done: "
	if o.Found() {
		o.Undone = "ended early: "
	}
	o.Undone += strings.ReplaceAll(err.Error(), "\n", "; ")
	o.Findings = append(o.Findings, o.Undone)
}

type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Aim   string  `json:"aim,omitempty"` // as shown to people: "≤ 5 s"
	Met   *bool   `json:"met,omitempty"`
}

func (f Figure) Missed() bool { return f.Met != nil && !*f.Met }

func (o *Outcome) Found() bool {
	return o.Lost != 0 || o.Wrong != 0 || slices.ContainsFunc(o.Figures, Figure.Missed)
}

func (o *Outcome) Passed() bool { return o.Undone == "" && !o.Found() }

const maxFindings = 20

func (a *Attempt) Offered(n int) { a.change(func(o *Outcome) { o.Offered += int64(n) }) }

func (a *Attempt) Acknowledged(n int) { a.change(func(o *Outcome) { o.Acknowledged += int64(n) }) }

func (a *Attempt) Lost(format string, args ...any) {
	a.found(func(o *Outcome) { o.Lost++ }, "lost: "+fmt.Sprintf(format, args...))
}

func (a *Attempt) Wrong(format string, args ...any) {
	a.found(func(o *Outcome) { o.Wrong++ }, "wrong: "+fmt.Sprintf(format, args...))
}

func (a *Attempt) Figure(name string, value float64, unit string) {
	a.change(func(o *Outcome) { o.Figures = append(o.Figures, Figure{Name: name, Value: value, Unit: unit}) })
}

// A missed aim is a finding.
func (a *Attempt) Aimed(name string, value float64, unit, aim string, met bool) {
	take := func(o *Outcome) { o.Figures = append(o.Figures, Figure{name, value, unit, aim, &met}) }
	if met {
		a.change(take)
		return
	}
	a.found(take, fmt.Sprintf("missed: %s is %g %s, wanted %s", name, value, unit, aim))
}

func (a *Attempt) AtMost(name string, value float64, unit string, most float64) {
	a.Aimed(name, value, unit, strings.TrimSpace(fmt.Sprintf("≤ %g %s", most, unit)), value <= most)
}

func (a *Attempt) AtLeast(name string, value float64, unit string, least float64) {
	a.Aimed(name, value, unit, strings.TrimSpace(fmt.Sprintf("≥ %g %s", least, unit)), value >= least)
}

func (a *Attempt) Some(name string, n int) {
	a.Figure(name, float64(n), "")
	if n == 0 {
		a.Wrong("%s: there were none, so the row proves nothing about them", name)
	}
}

func (a *Attempt) None(name string, n int) { a.Aimed(name, float64(n), "", "0", n == 0) }

// Each use has its own number.
func (a *Attempt) Rand(use int) *rand.Rand { return rand.New(rand.NewPCG(a.Seed, uint64(use))) }

func (a *Attempt) Start(ctx context.Context, flags ...string) (*nodeprocess.Node, error) {
	return nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(a.Dir, "data"),
		Flags: flags}, time.Minute)
}

func (a *Attempt) found(count func(*Outcome), line string) {
	caught, kept := a.Control != nil && a.Control.CaughtBy(line), false
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

func (a *Attempt) Outcome() Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.o
}

func Pause(ctx context.Context, d time.Duration) { _ = periodic.Pause(ctx, d) }

// Background calls do(0) to do(n-1) in a goroutine each. stop cancels their context and waits.
func Background(ctx context.Context, n int, do func(ctx context.Context, i int)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { do(ctx, i) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func every(ctx context.Context, d time.Duration, do func()) (stop func()) {
	return Background(ctx, 1, func(ctx context.Context, _ int) {
		for range periodic.NowAndEvery(ctx, d) {
			do()
		}
	})
}

// Calls that fail are left out.
func Median(ctx context.Context, read func() (int, error)) (stop func() int) {
	var all []int
	end := every(ctx, 50*time.Millisecond, func() {
		if n, err := read(); err == nil {
			all = append(all, n)
		}
	})
	return func() int {
		end()
		return report.Quantile(all, 0.5)
	}
}

func Watch(ctx context.Context, n *nodeprocess.Node) (peaks func() (files int, memory int64)) {
	var files int
	var memory int64
	stop := every(ctx, 100*time.Millisecond, func() {
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

func Feed(ctx context.Context, n *nodeprocess.Node, key, lines string) {
	if status, text := must.Get2(n.Post(ctx, key, lines)); status != http.StatusAccepted {
		must.Fail("telemetry was not accepted: %d %s", status, text)
	}
}

// Escapes such as \r are replaced.
func Lines(files embed.FS, name string) (all []string) {
	text := must.Get(files.ReadFile(name))
	for line := range strings.Lines(string(text)) {
		quoted := `"` + strings.ReplaceAll(strings.TrimSuffix(line, "\n"), `"`, `\"`) + `"`
		all = append(all, must.Get(strconv.Unquote(quoted)))
	}
	return all
}

type Tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *Tally) Add(name string, n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = make(map[string]int)
	}
	t.n[name] += n
	return t.n[name]
}

func (t *Tally) Of(name string) int { return t.Add(name, 0) }
