// Package full fills the disk under a node while it is under load, and gives the
// space back.
package full

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"carstate/internal/broken"
	"carstate/internal/nodeprocess"
	"carstate/torture/load"
	"carstate/torture/row"
)

// Row is the torture of a full disk.
var Row = row.Row{
	Number:  3,
	Name:    "full",
	Title:   "A full disk",
	Promise: "While the disk is full every query is answered, and nothing is acknowledged that is not stored: HTTP ingest and the admin API say 503, MQTT acknowledges nothing. Once there is space again, the node stores again within 5 seconds, or ends by then for its supervisor and recovers. Nothing acknowledged is lost.",
	How: `The data directory is a tmpfs of 256 MiB. While senders, operators and watchers are at work, a file of ballast takes the space that is left, down to the last byte, and takes again what the node frees; 1 to 8 seconds later the
file is removed. If the process ends, the row starts it again at once, as a supervisor does. Each query from the time the node is ready until the ballast goes must get 200. Then all of the journal is held against the node.

A process that ends and starts again does not answer queries for that time, which is a figure. With one node, that is the price of a full disk; with several, the others answer.`,
	Found: []string{
		"After a write error the engine says nothing but in its log, and each sender waited four seconds for its 503. The log is listened to now: the answer comes at once.",
		"After there was space again, the process took up to nine seconds to end for its supervisor. It is one now.",
		"A full disk wrote eleven lines of log a second. It is less than one now, beside a line for each deed of an operator that is refused.",
	},
	Counts: "times full", CI: 3, Long: 50,
	Controls: []row.Control{
		{Defect: broken.SwallowedErrors, Says: "takes a write that failed for one that was stored", Count: 1},
	},
	Needs: needs,
	Run:   run,
}

func needs() error {
	if os.Geteuid() != 0 {
		return errors.New("a small file system is mounted for it: run it as root")
	}
	return nil
}

const (
	diskBytes  = 256 << 20
	readyLimit = 2 * time.Minute
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
	asked                     int64         // queries while full
	refused                   int64         // requests, messages and connections while full
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
	n, err := t.start(ctx)
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
	if err := t.check(ctx, n); err != nil {
		return err
	}
	t.figures()
	return n.Stop()
}

func (t *torture) start(ctx context.Context) (*nodeprocess.Node, error) {
	n, err := nodeprocess.Start(ctx, t.options)
	if err != nil {
		return nil, err
	}
	if err := n.AwaitReady(ctx, readyLimit); err != nil {
		n.Kill()
		return nil, err
	}
	return n, nil
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
	stats := &t.load.Stats
	pause(ctx, 500*time.Millisecond+time.Duration(t.rnd.Int64N(int64(time.Second))))

	full, err := fill(filepath.Join(t.disk, "ballast"))
	if err != nil {
		return n, err
	}
	defer full.remove()
	began := time.Now()
	refused, asked, logged := stats.Refused.Load(), stats.Asked.Load(), lines(n)
	pause(ctx, time.Second+time.Duration(t.rnd.Int64N(int64(7*time.Second))))
	// How soon senders are told is of interest, and that some are.
	for end := time.Now().Add(resumeLimit); stats.Refused.Load() == refused && time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, 10*time.Millisecond)
	}
	if stats.Refused.Load() == refused && ctx.Err() == nil {
		t.Wrong("the disk was full for %s, and no sender was told", time.Since(began).Round(time.Second))
	}
	select {
	case <-n.Ended():
		t.Wrong("the process ended while the disk was full: %s", n.LastLine())
	default:
	}
	t.load.MustAnswer.Store(false)
	t.asked += stats.Asked.Load() - asked
	t.refused += stats.Refused.Load() - refused
	t.lines = max(t.lines, float64(lines(n)-logged)/time.Since(began).Seconds())
	t.Logf("full for %s: %d refused, %d queries", time.Since(began).Round(100*time.Millisecond), stats.Refused.Load()-refused, stats.Asked.Load()-asked)
	full.remove()
	freed := time.Now()

	ended := t.ended
	stored := func() bool { return stats.LastStored.Load() > freed.UnixNano() }
	for !stored() && ctx.Err() == nil {
		select {
		case <-n.Ended():
		default:
			if time.Since(freed) > resumeLimit {
				t.Wrong("there is space again, and %s later the node neither stores nor ends", resumeLimit)
				return n, errors.New("the node does not come back")
			}
			pause(ctx, 10*time.Millisecond)
			continue
		}
		t.ended++
		t.decided = max(t.decided, time.Since(freed))
		t.Logf("ended %s after there was space: %s", time.Since(freed).Round(100*time.Millisecond), n.LastLine())
		if code := n.ExitCode(); code != 1 {
			t.Wrong("the process ended with %d: %s", code, n.LastLine())
		}
		running.Wait()
		gone := time.Now()
		again, err := t.start(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Wrong("it does not start after the disk was full: %v", err)
			}
			return n, err
		}
		n = again
		t.silence = max(t.silence, time.Since(gone))
		running.Go(func() { t.load.Run(loading, n) })
	}
	t.resumed = max(t.resumed, time.Since(freed))
	if t.ended == ended {
		t.decided = max(t.decided, t.resumed)
	}
	pause(ctx, 300*time.Millisecond)
	stop()
	running.Wait()
	return n, t.check(ctx, n)
}

// check holds the node to the journal.
func (t *torture) check(ctx context.Context, n *nodeprocess.Node) error {
	if err := t.load.Settle(ctx, n); err != nil {
		if ctx.Err() == nil {
			t.Lost("%v", err)
		}
		return err
	}
	return t.load.CheckAll(ctx, n)
}

func (t *torture) figures() {
	t.Figure("queries answered while full, of as many", float64(t.asked), "")
	t.Figure("requests, messages and connections refused while full", float64(t.refused), "")
	t.Figure("deeds of operators refused", float64(t.load.Stats.DeedsRefused.Load()), "")
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

// pause waits, not longer than the context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
