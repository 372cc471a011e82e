// Package corrupt damages the data directory of a node that was stopped or killed,
// and wants the next start to give no wrong answer: it recovers all, or says in one
// line what is wrong and what to do.
package corrupt

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/load"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is the torture of damaged files.
var Row = row.Row{
	Number: 8,
	Name:   "corrupt",
	Title:  "A damaged data directory",
	Text:   prose,
	Counts: "damaged directories", CI: 50, Long: 1000,
	Controls: []row.Control{
		{Defect: "unchecked-records", Says: "starts without reading the stored records first", By: []string{"lost: *: it serves, and *"}, Count: 50},
	},
	Run: run,
}

// victims is how many nodes are tried at once.
const victims = 3

// torture is one attempt under way.
type torture struct {
	*row.Attempt
	load *load.Load

	witnessed time.Time // all that was acknowledged before, in the copy killed under load

	mu     sync.Mutex // guards counts
	counts map[string]int
}

// How an attempt ends.
const (
	refused   = "refused to start, or ended, with one line"
	recovered = "started with everything"
	silently  = "lost the last records after a crash, and could not know it"
)

func run(ctx context.Context, a *row.Attempt) error {
	t := &torture{Attempt: a, load: load.New(a), counts: make(map[string]int)}
	lefts, err := t.prepare(ctx)
	if err != nil {
		return fmt.Errorf("the directory to damage cannot be made: %w", err)
	}
	for _, l := range lefts {
		if err := t.spare(ctx, l); err != nil {
			return err
		}
	}
	var trying sync.WaitGroup
	errs, next := make([]error, victims), make(chan int)
	for v := range victims {
		trying.Go(func() {
			for i := range next {
				if err := t.try(ctx, i, lefts[i%len(lefts)]); err != nil {
					errs[v] = errors.Join(errs[v], err)
				}
			}
		})
	}
	for i := range a.Count {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	trying.Wait()
	for _, how := range []string{refused, recovered, silently} {
		t.Figure(how, float64(t.counts[how]), "")
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// left is a directory as a node left it.
type left struct {
	dir, how string
	// torn: records at its end may have no witness yet, so that their loss cannot
	// be told from a write that was torn.
	torn bool
}

// prepare makes directories as kill -9 leaves them, and one as a stop does.
func (t *torture) prepare(ctx context.Context) ([]left, error) {
	loaded, atRest, stopped := filepath.Join(t.Dir, "loaded"), filepath.Join(t.Dir, "rest"), filepath.Join(t.Dir, "stopped")
	n, err := t.start(ctx, loaded)
	if err != nil {
		return nil, err
	}
	defer n.Kill()
	if err := t.load.Prepare(ctx, n); err != nil {
		return nil, err
	}
	if err := t.load.Settle(ctx, n); err != nil {
		return nil, err
	}
	var loading sync.WaitGroup
	loading.Go(func() { t.load.Run(ctx, n) })
	row.Pause(ctx, 2*time.Second)
	if err := t.load.Enrich(ctx, n); err != nil {
		return nil, err
	}
	if t.witnessed, err = witnessed(ctx, n); err != nil {
		return nil, err
	}
	n.Kill()
	loading.Wait()
	t.load.MustHaveHappened()
	// The same once more, but killed when all was witnessed, and then stopped.
	if n, err = t.again(ctx, loaded, atRest); err != nil {
		return nil, err
	}
	defer n.Kill()
	if err := t.load.CheckAll(ctx, n); err != nil {
		return nil, err
	}
	settled := time.Now()
	if err := nodeprocess.Until(ctx, load.ReadyLimit, func(ctx context.Context) error {
		until, err := witnessed(ctx, n)
		if err == nil && !until.After(settled) {
			err = errors.New("no heartbeat of every stream was stored since")
		}
		return err
	}); err != nil {
		return nil, err
	}
	n.Kill()
	if n, err = t.again(ctx, atRest, stopped); err != nil {
		return nil, err
	}
	defer n.Kill()
	return []left{{loaded, "killed under load", true}, {atRest, "killed at rest", false}, {stopped, "stopped", false}}, t.stop(n)
}

// stop stops a node. That it does not end as it should is a finding.
func (t *torture) stop(n *nodeprocess.Node) error {
	err := n.Stop()
	if err != nil {
		t.Wrong("it does not stop as it should: %v", err)
	}
	return err
}

// fed is how many streams tell the age of their copy.
const fed = 3

// witnessed is a moment before which all that was acknowledged has a witness in
// every stream that tells the age of its copy: a heartbeat that began then or later.
func witnessed(ctx context.Context, n *nodeprocess.Node) (time.Time, error) {
	asked := time.Now()
	m, err := n.Metrics(ctx)
	if err != nil {
		return time.Time{}, err
	}
	worst, streams := 0.0, 0
	for name, age := range m {
		if strings.HasPrefix(name, "carstate_feed_age_seconds{") {
			worst, streams = max(worst, age), streams+1
		}
	}
	if streams != fed {
		return time.Time{}, fmt.Errorf("%d streams tell how old their copy is, and not %d", streams, fed)
	}
	return asked.Add(-time.Duration(worst * float64(time.Second))), nil
}

// again starts a node on a copy of a directory and waits until it has settled.
func (t *torture) again(ctx context.Context, from, to string) (*nodeprocess.Node, error) {
	if err := copyDir(from, to); err != nil {
		return nil, err
	}
	n, err := t.start(ctx, to)
	if err != nil {
		return nil, err
	}
	if err := t.load.Settle(ctx, n); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
}

// copyDir copies a data directory, with the mode that a node insists on.
func copyDir(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(to, "admin.key"), 0o600)
}

func (t *torture) start(ctx context.Context, dir string) (*nodeprocess.Node, error) {
	return nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: t.Binary, Dir: dir, Flags: load.Flags}, load.ReadyLimit)
}

// spare leaves a copy as it is: who refuses that as well knows nothing of damage.
func (t *torture) spare(ctx context.Context, l left) error {
	dir := filepath.Join(t.Dir, "spared")
	defer os.RemoveAll(dir)
	if err := copyDir(l.dir, dir); err != nil {
		return err
	}
	d := damage{says: l.how + ", not damaged"}
	how, err := t.judge(ctx, dir, d)
	if err == nil && how == refused {
		t.Wrong("%s: it does not serve", d.says)
	}
	return err
}

// try damages a copy and sees what becomes of it.
func (t *torture) try(ctx context.Context, i int, l left) error {
	dir := filepath.Join(t.Dir, fmt.Sprintf("try%d", i))
	defer os.RemoveAll(dir)
	if err := copyDir(l.dir, dir); err != nil {
		return err
	}
	d, err := inflict(rand.New(rand.NewPCG(t.Seed, uint64(100+i))), dir, l.torn)
	if err != nil {
		return err
	}
	t.Offered(1)
	d.says = l.how + ", " + d.says
	how, err := t.judge(ctx, dir, d)
	if ctx.Err() != nil {
		return nil
	}
	t.Acknowledged(1)
	t.Logf("%3d %s: %s", i, d.says, how)
	t.mu.Lock()
	t.counts[how]++
	t.mu.Unlock()
	return err
}

// judge starts a node on a damaged directory.
func (t *torture) judge(ctx context.Context, dir string, d damage) (how string, err error) {
	n, err := t.start(ctx, dir)
	var ended *nodeprocess.EndedError
	switch {
	case errors.As(err, &ended):
		return t.last(d, ended.Code, ended.Last), nil
	case err != nil:
		if ctx.Err() == nil {
			t.Wrong("%s: it neither gets ready nor ends: %v", d.says, err)
		}
		return "hangs", nil
	}
	defer n.Kill()
	var mu sync.Mutex
	var findings []load.Finding
	l := t.load.Fork(func(f load.Finding) {
		mu.Lock()
		defer mu.Unlock()
		findings = append(findings, f)
	})
	err = l.Settle(ctx, n)
	if err == nil {
		err = l.CheckAll(ctx, n)
	}
	if ctx.Err() != nil {
		return "", nil
	}
	if n.HasEnded() { // it found out later; what it answered before counts
		how = t.last(d, n.ExitCode(), n.LastLine())
	} else {
		how = recovered
		if err == nil {
			err = n.Stop()
		}
		if err != nil {
			findings = append(findings, load.Finding{Text: err.Error()})
		}
	}
	unexcused := slices.DeleteFunc(slices.Clone(findings), func(f load.Finding) bool { return excused(d, f, t.witnessed) })
	if len(unexcused) == 0 {
		if how == recovered && len(findings) > 0 {
			how = silently
		}
		return how, nil
	}
	first, report := unexcused[0], t.Wrong
	if first.Lost {
		report = t.Lost
	}
	report("%s: it serves, and %s (%d such)", d.says, first.Text, len(unexcused))
	return "wrong: " + first.Text, nil
}

// excused reports whether damage that cannot be told from a crash explains a
// finding: a record is missing that may have had no witness.
func excused(d damage, f load.Finding, witnessed time.Time) bool {
	return d.silent && f.Missing.After(witnessed)
}

// advice is what a last line must hold to say what to do: a verb that begins what
// it says, and what that is done to.
var advice = regexp.MustCompile(`(?:[:;,]|\b(?:and|or)) (?:restore|restart|start|choose|use|stop|check|move|run|leave|set|remove|give) (?:a|an|another|the|that|it|its|more|chmod|carstate|--[a-z-]+)\b`)

// last judges the last line of a node that ended.
func (t *torture) last(d damage, code int, line string) string {
	if code != 1 || strings.HasPrefix(line, "{") || !advice.MatchString(line) {
		t.Wrong("%s: it ended with %d and does not say what to do: %s", d.says, code, line)
		return "ended: " + line
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[line]++
	return refused
}
