package main_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

type demoProcess struct {
	cmd            *exec.Cmd
	stdout, stderr testkit.Buffer
	ended          chan struct{}
}

func startDemo(t *testing.T, program string, flags ...string) *demoProcess {
	t.Helper()
	startsPrograms(t)
	d := &demoProcess{cmd: exec.Command(program, append([]string{"demo"}, flags...)...), ended: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	d.cmd.Stdout, d.cmd.Stderr = &d.stdout, &d.stderr
	testkit.NoError(t, d.cmd.Start())
	go func() { _ = d.cmd.Wait(); close(d.ended) }()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		if t.Failed() {
			t.Logf("the demo said:\n%s%s", &d.stdout, &d.stderr)
		}
	})
	testkit.Await(t, "the demo is up", func() bool {
		select {
		case <-d.ended:
			t.Fatal("the demo: got its end, want it up")
		default:
		}
		return d.stdout.Count("End with Ctrl-C") > 0
	})
	return d
}

func (d *demoProcess) end(t *testing.T) {
	t.Helper()
	testkit.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	<-d.ended
	// Normal on a busy machine.
	complaints := slices.DeleteFunc(slices.Collect(strings.Lines(d.stderr.String())), func(line string) bool {
		return strings.Contains(line, "background work did not end in time")
	})
	if code := d.cmd.ProcessState.ExitCode(); code != exitOK || len(complaints) > 0 {
		t.Errorf("the end of the demo: got exit code %d, %s, want %d and no complaint", code, complaints, exitOK)
	}
	tmp, _ := strings.CutPrefix(d.cmd.Env[len(d.cmd.Env)-1], "TMPDIR=")
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("the temporary directory: got %d entries, %v, want none", len(left), err)
	}
}

// The printed curl commands work while another program uses the default query port, and within a
// minute the fleet shows every verdict.
func TestDemo(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "127.0.0.1:8080"); err == nil {
		defer l.Close() // another process may use the port
	}
	d := startDemo(t, plain)
	want := []string{
		`{"code":200,"msg":"success","data":{"vid":"NHeN4UqVsohGS55I7LBdh","status":1,"vehicle_runing_state":"3"}}`,
		`{"code":200,"msg":"success","data":{"vid":"NHeN4UqVsohGS55I7LBdh","status":1,"throttle_system":"1"}}`,
	}
	var got []string
	for line := range strings.Lines(d.stdout.String()) {
		if strings.HasPrefix(line, "curl ") {
			out, err := exec.Command("sh", "-c", line).Output()
			if err != nil {
				t.Fatalf("%s: got %v, want no error", line, err)
			}
			got = append(got, string(out))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("the pasted lines: got %q, want %q", got, want)
	}
	if d.stdout.Count("600 simulated cars are on their way too, from vid DEMO00000 to DEMO00599") == 0 {
		t.Errorf("the demo: got\n%s\nwant a line about its fleet", &d.stdout)
	}
	line := regexp.MustCompile(`(?m)^curl -G (\S+)/api/\S+ -d access_token=(\S+)`).FindStringSubmatch(d.stdout.String())
	developer := client.New(line[1], line[2], client.WithPatience(0))
	testkit.NoError(t, until(2*testkit.Patience, func() error {
		driving, throttle := make(map[client.DrivingState]int), make(map[client.ThrottleState]int)
		for i := range 600 {
			vid := fmt.Sprintf("DEMO%05d", i)
			driven, err1 := developer.CarDrivingState(t.Context(), vid)
			system, err2 := developer.ThrottleSystem(t.Context(), vid)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			driving[driven.State]++
			throttle[system.System]++
		}
		if min(driving[client.TrafficJam], driving[client.SlowDriving], driving[client.NormalDriving]) == 0 ||
			throttle[client.ThrottleAnomaly] == 0 || throttle[client.ThrottleNormal] < 450 {
			_ = periodic.Pause(t.Context(), time.Second)
			return fmt.Errorf("not everything is on the roads: driving %v, throttle %v", driving, throttle)
		}
		return nil
	}))
	d.end(t)
}

func TestSIGHUPDoesNotEndTheDemo(t *testing.T) {
	t.Parallel()
	d := startDemo(t, binary, "--fleet", "20", "--mqtt-addr", "", "--query-addr", "127.0.0.1:0",
		"--ingest-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")
	testkit.NoError(t, d.cmd.Process.Signal(syscall.SIGHUP))
	d.end(t)
}

func TestExternalNATS_SurvivesRestart(t *testing.T) {
	t.Parallel()
	nats := clustertest.StartServer(t).URL()
	dir := t.TempDir()
	p := start(t, dir, "--nats", nats, "--partitions", "4")
	token, key := p.issue(t), p.addSource(t, "gateway")
	if n, err := post(p, key, []string{"carA", "carB"}); n != 2 || err != nil {
		t.Fatalf("telemetry: got %d accepted, %v, want 2", n, err)
	}
	known := func() error {
		for _, vid := range []string{"carA", "carB"} {
			a, err := p.ask(drivingPath, token, vid)
			if err != nil {
				return err
			}
			if a.HTTP != http.StatusOK || a.Driving != "1" {
				return errors.New(vid + " is not known")
			}
		}
		return nil
	}
	testkit.NoError(t, until(30*time.Second, known))
	for _, name := range ofClusters {
		testkit.NoError(t, until(30*time.Second, func() error {
			if !strings.Contains(p.metrics(t), "\n"+name+"{") {
				return fmt.Errorf("there is no metric %s", name)
			}
			return nil
		}))
	}
	documented(t, p.metrics(t), "A cluster")
	p.stop(t)
	p = start(t, dir, "--nats", nats)
	testkit.NoError(t, until(30*time.Second, known))
}
