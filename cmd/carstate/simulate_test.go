package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/lab/simulate"
	"example.org/carstate/internal/test/testkit"
)

func TestSimulate_VerdictsAgreeWithTruth(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	var r simulate.Report
	out := p.carstate(t, "simulate", "--vehicles", "60", "--backdate", "9m", "--duration", "20s", "--faults", "20",
		"--free-flow", "--json")
	testkit.NoError(t, json.Unmarshal([]byte(out), &r))
	if r.Vehicles != 60 || r.Seconds < 560 || r.Acknowledged < 60*560*3/4 || r.Refused != 0 || r.FailedQueries != 0 {
		t.Errorf("got %+v, want 60 vehicles, 560 s, most samples acknowledged and nothing failed", r)
	}
	d, th := r.Driving, r.Throttle
	if d == nil || th == nil {
		t.Fatalf("got %s, want tables of driving and of the throttle", out)
	}
	rows := 0
	for _, road := range d.Roads {
		rows += road.Rows
	}
	for _, tenth := range d.ByFlow {
		for _, n := range tenth {
			rows += n
		}
	}
	// On a busy machine, each car may have only the answer at the end.
	if d.Rows < 40 || rows != 2*d.Rows || len(d.Roads) != 3 {
		t.Errorf("the tables: got %+v, want 40 rows or more, the same in each, and 3 roads", d)
	}
	// Answers that are wrong for longer than a minute are rare.
	if wrong := d.Disagreed - d.SoonAfter; wrong > d.Rows/8 {
		t.Errorf("wrong, not after a change of the road: got %d, want %d at most: %+v", wrong, d.Rows/8, d.Confusion)
	}
	if d.ParkedRight == 0 || d.ParkedOtherwise > d.ParkedRight/5 {
		t.Errorf("parked: got %d right, %d not, want a fifth of them at most", d.ParkedRight, d.ParkedOtherwise)
	}
	begun := 0
	for _, k := range th.Kinds {
		begun += k.Begun
	}
	if begun < 10 || th.Recall == nil || *th.Recall < 0.8 || *th.Precision < 0.9 || th.Healthy.Normal == 0 ||
		th.Faulty.Anomaly == 0 {
		t.Errorf("throttle: got %+v, want 10 faults, recall 0.8, precision 0.9, and both verdicts", th)
	}
	t.Logf("%d rows, %d answers behind", d.Rows, d.Behind)
}

// drive waits for an answer from a reading since the start.
func drive(t *testing.T, p *process, cmd *exec.Cmd, token string) (ended chan error, stdout, stderr *bytes.Buffer) {
	t.Helper()
	ended, stdout, stderr = make(chan error, 1), new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	began := time.Now().Truncate(time.Second)
	testkit.NoError(t, cmd.Start())
	go func() { ended <- cmd.Wait() }()
	if err := until(30*time.Second, func() error {
		a, err := p.ask(drivingPath, token, "SIM00000")
		if err == nil && (a.Status != 1 || a.Modified.Before(began)) {
			err = errors.New("the fleet is not on the road")
		}
		return err
	}); err != nil {
		cmd.Process.Kill()
		t.Fatalf("the fleet: got %v, want it on the road\n%s", err, stderr)
	}
	return ended, stdout, stderr
}

// The report is printed, and the temporary source and token are removed.
func TestSimulateInterrupted(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	cmd := exec.Command(binary, "simulate", "--vehicles", "20", "--backdate", "1m")
	cmd.Env = p.env()
	ended, stdout, stderr := drive(t, p, cmd, p.issue(t))
	cmd.Process.Signal(syscall.SIGINT)
	if err := <-ended; err != nil {
		t.Fatalf("the interrupted command: got %v, want no error\n%s", err, stderr)
	}
	if !strings.HasPrefix(stdout.String(), "20 cars drove for 1m") || !strings.Contains(stdout.String(), " 0 refused") {
		t.Errorf("the report: got %q, want 20 cars for 1m, 0 refused", stdout)
	}
	if list := p.carstate(t, "source", "list"); !strings.Contains(list, "no source yet") {
		t.Errorf("the sources: got %s, want none left", list)
	}
}

func TestSimulateOutage(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	token, key := p.issue(t), p.addSource(t, "gateway")
	cmd := exec.Command(binary, "simulate", "--vehicles", "20", "--source", "gateway", "--key", key, "--json")
	cmd.Env = append(p.env(), "CARSTATE_TOKEN="+token)
	ended, stdout, stderr := drive(t, p, cmd, token)
	p.Kill()
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != exitError {
		t.Errorf("without a service: got exit code %d, %s, want %d", code, stderr, exitError)
	}
	var r simulate.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || r.Acknowledged == 0 {
		t.Errorf("got %v and the report %q, want acknowledged samples", err, stdout)
	}
	// Progress may precede it.
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(stderr.String()), "\n"),
		func(l string) bool { return strings.Contains(l, "samples/s acknowledged") })
	if text := strings.Join(lines, "\n"); !strings.HasPrefix(text, "carstate: ") || strings.Contains(text, "\n") {
		t.Errorf("stderr: got %q, want one clear line", text)
	}
	if text := stderr.String(); strings.Contains(text, key) || strings.Contains(text, token) {
		t.Errorf("stderr: got %q, want no secret", text)
	}
}
