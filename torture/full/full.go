// Package full fills the disk under a node while it is under load, and gives the
// space back.
package full

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/load"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is the torture of a full disk.
var Row = row.Row{
	Number: 3,
	Name:   "full",
	Title:  "A full disk",
	Text:   prose,
	Counts: "times full", CI: 3, Long: 50,
	Controls: []row.Control{
		{Defect: "swallowed-errors", Says: "takes a write that failed for one that was stored", By: []string{load.LostSample, load.LostCar}, Count: 1},
	},
	Needs: needs,
	Run:   run,
}

// needs mounts one for real: root in a container often may not.
func needs() error {
	dir, err := os.MkdirTemp("", "carstate-full-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4096,mode=700"); err != nil {
		return fmt.Errorf("a small file system is mounted for it: run it as root that may mount: %w", err)
	}
	return syscall.Unmount(dir, syscall.MNT_DETACH)
}

const (
	diskBytes = 256 << 20
	// resumeAim is how soon telemetry is stored again once there is space.
	resumeAim = 5 * time.Second
	// resumeLimit ends the wait for it.
	resumeLimit = time.Minute
)

// torture is one attempt under way.
type torture struct {
	*row.Attempt
	rnd     *rand.Rand
	load    *load.Load
	disk    string // where the tmpfs is mounted
	options nodeprocess.Options

	ended                     int           // times that the process ended for its supervisor
	resumed, decided, silence time.Duration // the longest
	lines                     float64       // of log a second while full, the most
	while                     counts        // the disk was full
}

func run(ctx context.Context, a *row.Attempt) error {
	t := &torture{Attempt: a, rnd: rand.New(rand.NewPCG(a.Seed, 0)), load: load.New(a), disk: filepath.Join(a.Dir, "disk")}
	if err := os.Mkdir(t.disk, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", t.disk, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", diskBytes)); err != nil {
		return fmt.Errorf("a tmpfs cannot be mounted: %w", err)
	}
	defer func() { _ = syscall.Unmount(t.disk, syscall.MNT_DETACH) }()
	t.options = nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(t.disk, "data"), Flags: load.Flags}
	n, err := nodeprocess.StartReady(ctx, t.options, load.ReadyLimit)
	if err != nil {
		return err
	}
	defer func() { n.Kill() }()
	if err := t.load.Prepare(ctx, n); err != nil {
		return err
	}
	for range a.Count {
		if n, err = t.fillOnce(ctx, n); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	if err := t.load.Hold(ctx, n, t.load.CheckAll); err != nil {
		return err
	}
	n.Kill()
	again, err := t.load.Start(ctx, t.options, "the disk was full, and kill -9")
	if err != nil {
		return err
	}
	n = again
	if err := t.load.Hold(ctx, n, t.load.CheckAll); err != nil {
		return err
	}
	t.figures()
	t.mustHaveRefused()
	t.load.End(n)
	return nil
}

// Answers that the load may meet while the disk is full.
const (
	answered = iota
	posts
	mqtt
	deeds
	cut
	sorts
)

// counts is how often the load has met each.
type counts [sorts]int64

func (t *torture) met() counts {
	s := &t.load.Stats
	return counts{answered: s.Asked.Load() - s.Unanswered.Load(), posts: s.PostsRefused.Load(), mqtt: s.MQTTRefused.Load(), cut: s.MQTTCut.Load(), deeds: s.DeedsRefused.Load()}
}

// since is what was met after some.
func (c counts) since(before counts) counts {
	for i := range c {
		c[i] -= before[i]
	}
	return c
}

// mustHaveRefused finds it wrong if somebody was never told that the disk is full,
// or nothing was asked meanwhile.
func (t *torture) mustHaveRefused() {
	for sort, what := range map[int]string{
		answered: "answered a query", posts: "refused an HTTP request of a sender",
		mqtt: "told an MQTT client that it stores nothing", deeds: "refused a call of the admin API",
	} {
		if t.while[sort] == 0 {
			t.Wrong("as long as the disk was full, the node never %s", what)
		}
	}
}

// fillOnce fills the disk under a loaded node, gives the space back and waits
// until the node stores again. It returns the node that runs then.
func (t *torture) fillOnce(ctx context.Context, n *nodeprocess.Node) (*nodeprocess.Node, error) {
	loading, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	t.load.MustAnswer.Store(true)
	defer t.load.MustAnswer.Store(false)
	running.Go(func() { t.load.Run(loading, n) })
	row.Pause(ctx, 500*time.Millisecond+time.Duration(t.rnd.Int64N(int64(time.Second))))

	full, err := fill(filepath.Join(t.disk, "ballast"))
	if err != nil {
		return n, err
	}
	defer full.remove()
	began := time.Now()
	before, logged := t.met(), lines(n)
	told := func() bool { m := t.met().since(before); return m[posts]+m[mqtt] > 0 }
	row.Pause(ctx, time.Second+time.Duration(t.rnd.Int64N(int64(7*time.Second))))
	// How soon senders are told is of interest, and that some are.
	for end := time.Now().Add(resumeLimit); !told() && time.Now().Before(end) && ctx.Err() == nil; {
		row.Pause(ctx, 10*time.Millisecond)
	}
	if !told() && ctx.Err() == nil {
		t.Wrong("the disk was full for %s, and no sender was told", time.Since(began).Round(time.Second))
	}
	if n.HasEnded() {
		t.Wrong("the process ended while the disk was full: %s", n.LastLine())
	}
	t.load.MustAnswer.Store(false)
	met := t.met().since(before)
	for i, n := range met {
		t.while[i] += n
	}
	t.lines = max(t.lines, float64(lines(n)-logged)/time.Since(began).Seconds())
	t.Logf("full for %s: %+v", time.Since(began).Round(100*time.Millisecond), met)
	full.remove()
	freed := time.Now()

	ended := t.ended
	stored := func() bool { return t.load.Stats.LastStored.Load() > freed.UnixNano() }
	for !stored() && ctx.Err() == nil {
		if !n.HasEnded() {
			if time.Since(freed) > resumeLimit {
				t.Wrong("there is space again, and %s later the node neither stores nor ends", resumeLimit)
				return n, errors.New("the node does not come back")
			}
			row.Pause(ctx, 10*time.Millisecond)
			continue
		}
		t.decided = max(t.decided, time.Since(freed))
		t.Logf("ended %s after there was space: %s", time.Since(freed).Round(100*time.Millisecond), n.LastLine())
		running.Wait()
		if n, err = t.supervise(ctx, n); err != nil {
			return n, err
		}
		running.Go(func() { t.load.Run(loading, n) })
	}
	t.resumed = max(t.resumed, time.Since(freed))
	if t.ended == ended {
		t.decided = max(t.decided, t.resumed)
	}
	row.Pause(ctx, 300*time.Millisecond)
	stop()
	running.Wait()
	if err = t.load.Hold(ctx, n, t.load.CheckAll); err == nil || ctx.Err() != nil || !n.HasEnded() {
		return n, err
	}
	// It said that it stores again, and ended all the same, which was wrong. What
	// became of what it said is for the next process to tell.
	if n, err = t.supervise(ctx, n); err != nil {
		return n, err
	}
	return n, t.load.Hold(ctx, n, t.load.CheckAll)
}

// supervise starts the node again once it has ended by itself.
func (t *torture) supervise(ctx context.Context, n *nodeprocess.Node) (*nodeprocess.Node, error) {
	t.ended++
	if code := n.ExitCode(); code != 1 {
		t.Wrong("the process ended with %d: %s", code, n.LastLine())
	}
	gone := time.Now()
	again, err := t.load.Start(ctx, t.options, "the disk was full")
	if err != nil {
		return n, err
	}
	t.silence = max(t.silence, time.Since(gone))
	return again, nil
}

func (t *torture) figures() {
	t.Figure("queries answered while full", float64(t.while[answered]), "")
	t.Figure("HTTP requests of senders refused while full", float64(t.while[posts]), "")
	t.Figure("MQTT connections refused or ended while full, told why", float64(t.while[mqtt]), "")
	t.Figure("MQTT connections ended while full, and the client saw no reason", float64(t.while[cut]), "")
	t.Figure("calls of the admin API refused while full", float64(t.while[deeds]), "")
	t.Aimed("stored again, or ended for its supervisor, after there was space, slowest", t.decided.Seconds(), "s", "≤ 5 s", t.decided <= resumeAim)
	t.Figure("times that the process ended for its supervisor", float64(t.ended), "")
	t.Figure("from there until it was ready again, slowest", t.silence.Seconds(), "s")
	t.Figure("telemetry stored again after there was space, slowest", t.resumed.Seconds(), "s")
	t.Figure("lines of log a second while full, beside one for each refused deed, most", t.lines, "")
}

// lines counts what a node has logged, but for the line that each deed leaves that
// was refused.
func lines(n *nodeprocess.Node) int {
	log := n.Log()
	return strings.Count(log, "\n") - strings.Count(log, "the audit cannot be written")
}
