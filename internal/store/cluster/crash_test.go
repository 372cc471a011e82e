package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// What was acknowledged before an orderly end is there after it.
func TestRestart(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := t.TempDir()
	acked := map[vehicle.ID]int64{}
	for round := range 3 {
		e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir, Partitions: 4})
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			checkAcked(t, e, acked)
		}
		for v := range 5 {
			vid := fmt.Sprintf("car%d", v)
			for range 20 {
				at := acked[vehicle.ID(vid)] + 1
				if err := e.Append(t.Context(), []vehicle.Sample{sample(vid, at, 50)}); err != nil {
					t.Fatal(err)
				}
				acked[vehicle.ID(vid)] = at
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What was acknowledged before kill -9 is there after it.
func TestKilled(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := t.TempDir()
	acked := map[vehicle.ID]int64{}
	for range 5 {
		c := childProcess(t, "append", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var complaints bytes.Buffer
		c.Stderr = &complaints
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// The pipe is the journal of what was acknowledged; what is in it
		// when the process dies counts too.
		lines, killAfter := bufio.NewScanner(out), 20+rand.IntN(300)
		n := 0
		for lines.Scan() {
			var vid vehicle.ID
			var at int64
			if _, err := fmt.Sscan(lines.Text(), &vid, &at); err != nil {
				continue // the line that the kill cut
			}
			acked[vid] = max(acked[vid], at)
			if n++; n == killAfter {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.Wait()
		if n < killAfter {
			t.Fatalf("the process ended after %d acknowledgements: %s", n, complaints.String())
		}
		e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir, Partitions: 4})
		if err != nil {
			t.Fatal(err)
		}
		checkAcked(t, e, acked)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// appendUntilKilled stores samples 1, 2, 3, … of several vehicles, going on
// where the directory ends, and prints each one once it is acknowledged.
func appendUntilKilled(dir string) error {
	ctx := context.Background()
	e, err := cluster.Open(ctx, cluster.Config{DataDir: dir, Partitions: 4})
	if err != nil {
		return err
	}
	// Later than all rounds before, whose samples were numbered one by one: no
	// disk stores one a microsecond.
	base := time.Now().UnixMicro()
	errs := make(chan error)
	var out sync.Mutex
	for w := range 4 {
		go func() {
			vid := fmt.Sprintf("car%d", w)
			for i := base; ; i++ {
				if err := e.Append(ctx, []vehicle.Sample{sample(vid, i, 50)}); err != nil {
					errs <- err
					return
				}
				out.Lock()
				fmt.Println(vid, i)
				out.Unlock()
			}
		}()
	}
	return <-errs
}

// checkAcked reads all of TELEMETRY and looks whether each vehicle's samples go
// on without a gap, within each run of a process, up to what was acknowledged.
func checkAcked(t *testing.T, e *cluster.Engine, acked map[vehicle.ID]int64) {
	t.Helper()
	const markers = 1 << 60 // no sample of the children is as late
	marker := time.Now().UnixNano()
	got := map[vehicle.ID]int64{}
	for p := range e.Partitions() {
		vid := vehicleIn(p, e.Partitions())
		if err := e.Append(t.Context(), []vehicle.Sample{sample(string(vid), marker, 0)}); err != nil {
			t.Fatal(err)
		}
		part, err := e.Take(t.Context(), p, "check", store.Anyone)
		if err != nil {
			t.Fatal(err)
		}
		ended := false
		for last := uint64(0); !ended; {
			seq, samples, err := part.Next(testkit.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			if seq <= last {
				t.Fatalf("sequence %d follows %d", seq, last)
			}
			last = seq
			for _, x := range samples {
				switch at := int64(x.Time); {
				case at > markers:
					ended = at == marker
				case at <= got[x.Vehicle]:
					t.Fatalf("%s: %d follows %d", x.Vehicle, at, got[x.Vehicle])
				case at != got[x.Vehicle]+1 && at < got[x.Vehicle]+10:
					t.Fatalf("%s: a gap between %d and %d", x.Vehicle, got[x.Vehicle], at)
				default:
					got[x.Vehicle] = at
				}
			}
		}
		part.Close()
	}
	for vid, at := range acked {
		if got[vid] < at {
			t.Errorf("%s: acknowledged up to %d, stored up to %d", vid, at, got[vid])
		}
	}
}

// vehicleIn makes up a vehicle of a partition.
func vehicleIn(p, partitions int) vehicle.ID {
	for i := 0; ; i++ {
		id := vehicle.ID(fmt.Sprintf("marker%d", i))
		if codec.PartitionOf(id, partitions) == p {
			return id
		}
	}
}

// An engine whose disk refuses to write acknowledges nothing and says so; once
// the disk takes writes again it asks for the restart that cures it.
func TestStarved(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"starve", "tear"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			starved(t, how)
		})
	}
}

func starved(t *testing.T, how string) {
	dir := t.TempDir()
	c := childProcess(t, how, dir)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var acked int64
	if _, err := fmt.Sscan(string(out), &acked); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir, Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	checkAcked(t, e, map[vehicle.ID]int64{"carA": acked})
	if err := e.Writable(); err != nil {
		t.Fatal(err)
	}
}

// starveOfDisk forbids its own process to write any file.
func starveOfDisk(dir string) error {
	return starve(dir, func() (uint64, error) { return 0, nil })
}

// tearWrite lets only the first bytes of the next commit onto the disk.
func tearWrite(dir string) error {
	return starve(dir, func() (uint64, error) {
		f, err := os.Stat(filepath.Join(dir, "engine", "jetstream", "$G", "streams", codec.Telemetry, "msgs", "1.blk"))
		if err != nil {
			return 0, err
		}
		return uint64(f.Size()) + 20, nil
	})
}

// starve bounds the size of the files that its own process may write while an
// engine is open, and prints how many samples were acknowledged.
func starve(dir string, bound func() (uint64, error)) error {
	signal.Ignore(syscall.SIGXFSZ)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := impatient
	p.Try = time.Hour // nothing here may wait for an answer that never comes
	e, err := cluster.Open(ctx, cluster.Config{DataDir: dir, Partitions: 4, Patience: store.Patience{Store: time.Hour}, Timeouts: p})
	if err != nil {
		return err
	}
	feeds, err := followAll(ctx, e)
	if err != nil {
		return err
	}
	acked := int64(0)
	store := func() error {
		err := e.Append(ctx, []vehicle.Sample{sample("carA", acked+1, 50)})
		if err == nil {
			acked++
		}
		return err
	}
	for range 20 {
		if err := store(); err != nil {
			return err
		}
	}
	if err := e.Writable(); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	most, err := bound()
	if err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: limit.Max}); err != nil {
		return err
	}
	if err := store(); err == nil {
		return errors.New("a sample was acknowledged that no disk took")
	}
	if e.Writable() == nil {
		return errors.New("the engine calls itself writable")
	}
	if err := staysCurrent(ctx, e, 2*p.Stall); err != nil {
		return err
	}
	if err := e.Writable(); err == nil {
		return errors.New("the engine calls itself writable again")
	}
	if err := e.Alive(); err != nil {
		return fmt.Errorf("failed before the disk recovered: %w", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	select {
	case <-e.Failed():
	case <-ctx.Done():
		return errors.New("nobody asked for a restart")
	}
	if err := e.Alive(); err == nil {
		return errors.New("an engine that failed calls itself alive")
	}
	feeds()
	fmt.Fprintln(os.Stdout, acked)
	return e.Close()
}

// followAll keeps copies of all streams that are fed, until it is told to end.
func followAll(ctx context.Context, e *cluster.Engine) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	k := store.NewKeeper(e, store.Config{}, new(access.Tables))
	var running, ready sync.WaitGroup
	ready.Add(3)
	running.Go(func() { _ = k.RunTokens(ctx, ready.Done) })
	running.Go(func() { _ = k.RunSources(ctx, ready.Done) })
	running.Go(func() {
		_ = e.FollowStates(ctx, func(vehicle.ID, vehicle.State) {}, ready.Done)
	})
	ready.Wait()
	for {
		if _, err := e.FeedAge(); err == nil {
			return func() { cancel(); running.Wait() }, nil
		}
		select {
		case <-ctx.Done():
			cancel()
			return nil, errors.New("the feeds did not catch up")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// staysCurrent looks for a while whether the copies become current again and
// again, as they can be, since no heartbeat can be stored.
func staysCurrent(ctx context.Context, e *cluster.Engine, long time.Duration) error {
	for end := time.Now().Add(long); ; {
		began := time.Now()
		for {
			age, err := e.FeedAge()
			if err != nil {
				return err
			}
			if age < time.Since(began) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the copies are said to be %s old, although nothing can be stored", age)
			case <-time.After(10 * time.Millisecond):
			}
		}
		if began.After(end) {
			return nil
		}
	}
}

// A process that was stopped for longer than any write may take goes on with the
// engine it has: nothing is wrong with it.
func TestFrozen(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	c := childProcess(t, "freeze", t.TempDir())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	c.Stderr = &complaints
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	// What is printed is read at once, so that the process is always busy
	// storing when it is stopped.
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case stored <- struct{}{}:
			default:
			}
		}
	}()
	for range 3 {
		for range 20 {
			<-stored
		}
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		frozen := time.NewTimer(frozenFor) // what is tested is that time goes by
		<-frozen.C
		if err := c.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range stored {
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("%v: %s", err, complaints.String())
	}
}

// frozenFor is many times what an impatient engine gives a write.
const frozenFor = 3 * time.Second

// appendUntilAsked stores samples of all partitions, prints a line for each one,
// and wants the engine to be well in the end.
func appendUntilAsked(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := impatient
	p.Try, p.Beat = 300*time.Millisecond, 100*time.Millisecond
	e, err := cluster.Open(ctx, cluster.Config{DataDir: dir, Partitions: 4, Timeouts: p})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for w := range 8 {
		running.Go(func() {
			for i := int64(1); ctx.Err() == nil; i++ {
				err := e.Append(ctx, []vehicle.Sample{sample(fmt.Sprintf("car%d", w), i, 50)})
				if err == nil {
					fmt.Println(w, i)
				}
			}
		})
	}
	running.Wait()
	if err := e.Alive(); err != nil {
		return err
	}
	return e.Close()
}
