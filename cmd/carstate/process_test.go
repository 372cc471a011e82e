package main_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	carstate "example.org/carstate/cmd/carstate"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

var run = carstate.Run

// As docs/operations.md and sysexits.h have them.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2
	exitConfig  = 78
	exitStopped = 130
	exitPipe    = 141
)

// Otherwise the race detector delays the exit of a program by a second.
const endAtOnce = "atexit_sleep_ms=0"

const demoDrive = "../../internal/lab/demo/drive.csv.gz"

// With the race detector; a race fails the test.
var binary string

// Without it, it starts ten times as fast. Most commands, and the scripts, use it.
var plain string

var (
	unraced = flag.Bool("unraced", false, "start only programs without the race detector, which is faster")
	given   = flag.String("binary", "", "start this carstate only, and build none")
)

func TestMain(m *testing.M) {
	if said := os.Getenv(ownerVariable); said != "" {
		if err := ownUntilAsked(said); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := os.Setenv("GORACE", endAtOnce); err != nil {
		panic(err)
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "carstate-test-")
	if err != nil {
		panic(err)
	}
	plain = filepath.Join(dir, "carstate")
	binary = plain
	if !*unraced {
		binary = filepath.Join(dir, "carstate-race")
	}
	if *given != "" {
		plain, binary = *given, *given
	}
	code := m.Run()
	os.RemoveAll(dir)
	clustertest.End()
	os.Exit(code)
}

var buildPlain = sync.OnceValue(func() error {
	if *given != "" {
		return nil
	}
	return nodeprocess.Build(context.Background(), "../..", "", plain)
})

// The first test that starts a program builds it.
var build = sync.OnceValue(func() error {
	if err := buildPlain(); err != nil || *unraced || *given != "" {
		return err
	}
	build := exec.Command("go", "build", "-race", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary)
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

type process struct {
	*nodeprocess.Node
	log   *testkit.Buffer
	began time.Time
}

// `make check` builds no program.
func startsPrograms(t *testing.T) {
	t.Helper()
	testkit.Slow(t, "it starts carstate or other programs")
	if err := build(); err != nil {
		t.Fatalf("the build: got %v, want a program", err)
	}
}

func start(t *testing.T, dir string, flags ...string) *process {
	t.Helper()
	return startOf(t, binary, dir, flags...)
}

// With another build of the program.
func startOf(t *testing.T, program, dir string, flags ...string) *process {
	t.Helper()
	startsPrograms(t)
	p, err := startProgram(program, dir, os.Environ(), flags...)
	testkit.NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of carstate:\n%s", p.log)
		}
	})
	return p
}

// Its error has the log.
func startProcess(dir string, env []string, flags ...string) (*process, error) {
	return startProgram(binary, dir, env, flags...)
}

func startProgram(program, dir string, env []string, flags ...string) (*process, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	p := &process{log: new(testkit.Buffer)}
	var err error
	p.Node, err = nodeprocess.Start(ctx, nodeprocess.Options{
		Binary: program, Dir: dir, Flags: flags,
		Env:   append(env, "GORACE="+endAtOnce),
		Heard: func(line []byte) { fmt.Fprintf(p.log, "%s\n", line) },
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, p.log)
	}
	if err := p.AwaitReady(ctx, testkit.Patience); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%w: %s", err, p.log)
	}
	p.began = time.Now()
	return p, nil
}

// end returns how long that took, without stalls of the machine.
func (p *process) end() (time.Duration, error) {
	stalled := testkit.Stall(filepath.Dir(p.Dir))
	began := time.Now()
	err := p.Stop()
	took := time.Since(began)
	return took - min(stalled(), took), err
}

func (p *process) stop(t *testing.T) time.Duration {
	t.Helper()
	took, err := p.end()
	if err != nil {
		t.Errorf("the end: got %v, want no error:\n%s", err, p.log)
	}
	return took
}

func (p *process) env() []string {
	return append(os.Environ(),
		"CARSTATE_DATA_DIR="+p.Dir,
		"CARSTATE_QUERY_ADDR="+p.Address(nodeprocess.Query),
		"CARSTATE_INGEST_ADDR="+p.Address(nodeprocess.Ingest),
		"CARSTATE_ADMIN_ADDR="+p.Address(nodeprocess.Admin))
}

func (p *process) carstate(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(plain, args...)
	cmd.Env = p.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("carstate %s: got %v, want no error\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

func (p *process) issue(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Ada", "--vehicles", "all"))
}

func (p *process) addSource(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(p.carstate(t, "source", "add", name, "--vehicles", "all"))
}

func (p *process) ask(path, token, vid string) (nodeprocess.Answer, error) {
	return p.Ask(context.Background(), path, token, vid)
}

// A replayed drive ends when it is sent: pass a time shortly before it.
func (p *process) folded(token, vid string, since time.Time) error {
	a, err := p.ask(drivingPath, token, vid)
	if err == nil && a.Modified.Before(since.Truncate(time.Second)) {
		err = fmt.Errorf("%s is folded until %s", vid, a.Modified)
	}
	return err
}

func until(limit time.Duration, ask func() error) error {
	return nodeprocess.Until(context.Background(), limit, func(context.Context) error { return ask() })
}

const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)
