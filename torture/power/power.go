// Package power cuts the power of the node's disk at random moments, under load,
// while it starts and while it ends, and holds the next life to what the last ones
// have acknowledged. What a disk forgets is package disk's matter.
package power

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/load"
	"carstate/torture/power/disk"
	"carstate/torture/power/mount"
	"carstate/torture/row"
)

//go:embed row.md.tmpl
var prose string

// Row is the torture of power cuts.
var Row = row.Row{
	Number: 2,
	Name:   "power",
	Title:  "Power cut at a random moment",
	Text:   prose,
	Counts: "cuts", CI: 10, Long: 200,
	Controls: []row.Control{
		{Defect: "no-sync", Says: "answers before the engine has synced",
			By: []string{load.LostSample, load.LostCar, "wrong: it does not start after a power cut: * is damaged (*stream *"}, Count: 8},
		{Defect: "rename-unsynced", Says: "replaces its own files without syncing them first",
			By: []string{"wrong: it does not start after a power cut: * is damaged (*.json makes no sense)*"}, Count: 8},
		{Defect: "abandon-interrupted", Says: "leaves an atomic batch torn that the power cut interrupted",
			By: []string{"lost: the * of convoy* was acknowledged, and is: *", load.LostSample, load.LostCar, load.LostToken}},
	},
	Needs: mount.Needs,
	Run:   run,
}

// aimLimit is how long is waited for the moment that was aimed at.
const aimLimit = 20 * time.Second

// The moments at which the power is cut.
const (
	loaded = iota
	aimed
	starting
	ending
	allMoments
)

// deck is how often each moment comes, of ten.
var deck = []int{starting, loaded, loaded, loaded, aimed, aimed, aimed, starting, ending, ending}

// torture is one attempt under way.
type torture struct {
	*row.Attempt
	rnd     *rand.Rand
	load    *load.Load
	convoy  *convoy
	options nodeprocess.Options

	disk  *disk.Disk
	mount *mount.Mount
	at    string // where it is mounted

	prepared bool
	startOps uint64 // of the disk in a start and in an end, as last seen
	endOps   uint64
	slowest  time.Duration
	cuts     [allMoments]int
	late     int
}

func run(ctx context.Context, a *row.Attempt) (err error) {
	t := &torture{
		Attempt: a, rnd: rand.New(rand.NewPCG(a.Seed, 20)), load: load.New(a), convoy: newConvoy(a), disk: disk.New(),
		at: filepath.Join(a.Dir, "disk"), startOps: 100, endOps: 20,
	}
	t.options = nodeprocess.Options{Binary: a.Binary, Dir: filepath.Join(t.at, "data"), Flags: load.Flags}
	if err := os.Mkdir(t.at, 0o700); err != nil {
		return err
	}
	if t.mount, err = mount.At(t.at, t.disk); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.mount.End()) }()
	moments := slices.Clone(deck)
	for i := range a.Count {
		if i%len(deck) == 0 {
			// The first is a start, on an empty disk at first.
			t.rnd.Shuffle(len(deck)-1, func(a, b int) { moments[1+a], moments[1+b] = moments[1+b], moments[1+a] })
		}
		moment := moments[i%len(deck)]
		t.cuts[moment]++
		if err := t.live(ctx, moment); err != nil || ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err := t.powerBack(moment); err != nil {
			return err
		}
	}
	n, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer n.Kill()
	if err := t.check(ctx, n, t.load.CheckAll); err != nil {
		return err
	}
	t.figures()
	t.load.End(n)
	return nil
}

// powerBack puts what the cut left of the disk in its place.
func (t *torture) powerBack(moment int) (err error) {
	if err := t.mount.End(); err != nil {
		return err
	}
	rnd := t.rnd
	if moment == aimed {
		rnd = nil // at the worst moment, the worst
	}
	t.disk = t.disk.After(rnd)
	t.mount, err = mount.At(t.at, t.disk)
	return err
}

// live starts the node and cuts the power.
func (t *torture) live(ctx context.Context, moment int) error {
	if moment == starting {
		return t.cutStart(ctx)
	}
	n, err := t.start(ctx)
	if err != nil {
		return err
	}
	defer n.Kill()
	if !t.prepared {
		if err := t.load.Prepare(ctx, n); err != nil {
			return err
		}
		if err := t.convoy.prepare(ctx, n); err != nil {
			return err
		}
		t.prepared = true
	}
	if err := t.check(ctx, n, t.load.CheckSome); err != nil {
		return err
	}
	t.cutUnderLoad(ctx, n, moment)
	return nil
}

// cutStart cuts the power at some moment of a start.
func (t *torture) cutStart(ctx context.Context) error {
	alive, kill := context.WithCancel(ctx)
	defer kill()
	t.disk.CutAfter(1 + t.rnd.Uint64N(t.startOps*5/4))
	go func() {
		select {
		case <-t.disk.Cut():
			kill()
		case <-alive.Done():
		}
	}()
	n, err := nodeprocess.Start(alive, t.options)
	if err == nil {
		err = n.AwaitReady(alive, load.ReadyLimit)
		t.disk.CutAfter(0)
		n.Kill()
	}
	select {
	case <-t.disk.Cut():
		return nil // whatever it said then
	default:
		return t.load.Refused(err, "a power cut")
	}
}

// cutUnderLoad puts the node under load and cuts the power, as soon as the disk has
// done a few more operations, so that each of them is as likely to be the last.
func (t *torture) cutUnderLoad(ctx context.Context, n *nodeprocess.Node, moment int) {
	alive, kill := context.WithCancel(ctx)
	var loading sync.WaitGroup
	if moment != aimed {
		loading.Go(func() { t.load.Run(alive, n) })
	}
	loading.Go(func() { t.convoy.run(alive, n) })
	defer loading.Wait()
	defer kill()
	defer n.Kill()
	select {
	case <-time.After(time.Duration(t.rnd.Int64N(int64(1500 * time.Millisecond)))):
	case <-n.Ended():
		t.Wrong("it ended by itself: %s", n.LastLine())
		t.disk.CutAfter(0)
		return
	case <-ctx.Done():
		return
	}
	if moment != ending {
		if moment == aimed {
			t.disk.CutAhead()
		} else {
			t.disk.CutAfter(1 + t.rnd.Uint64N(200))
		}
		select {
		case <-t.disk.Cut():
		case <-time.After(aimLimit): // it is cut now
			t.disk.CutAfter(0)
			t.late++
			if moment == aimed {
				t.cuts[aimed]--
			}
		case <-ctx.Done():
		}
		return
	}
	before := t.disk.Operations()
	t.disk.CutAfter(1 + t.rnd.Uint64N(t.endOps*5/4))
	_ = n.Signal(syscall.SIGTERM) // an error says that it has ended
	select {
	case <-t.disk.Cut():
	case <-n.Ended(): // and the power goes right behind it
		t.endOps = t.disk.Operations() - before
		t.disk.CutAfter(0)
	case <-ctx.Done():
	}
}

// start starts the node and waits until it is ready.
func (t *torture) start(ctx context.Context) (*nodeprocess.Node, error) {
	before := t.disk.Operations()
	n, err := t.load.Start(ctx, t.options, "a power cut")
	if err != nil {
		return nil, err
	}
	t.startOps = t.disk.Operations() - before
	t.slowest = max(t.slowest, time.Since(n.Began()))
	return n, nil
}

// check holds the node to the journal, or a part of it, and to the convoy's.
func (t *torture) check(ctx context.Context, n *nodeprocess.Node, look func(context.Context, *nodeprocess.Node) error) error {
	if err := t.load.Hold(ctx, n, look); err != nil {
		return err
	}
	return t.convoy.check(ctx, n)
}

func (t *torture) figures() {
	t.Figure("cuts under load", float64(t.cuts[loaded]), "")
	t.Figure("cuts under load, aimed, that hit", float64(t.cuts[aimed]), "")
	t.Figure("cuts whose moment did not come in 20 s", float64(t.late), "")
	t.Figure("cuts between start and ready", float64(t.cuts[starting]), "")
	t.Figure("cuts while it ended, or right after", float64(t.cuts[ending]), "")
	t.Figure("ready again after a cut, slowest", t.slowest.Seconds(), "s")
}
