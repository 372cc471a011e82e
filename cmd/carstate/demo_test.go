package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"carstate/client"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/testkit"
)

// runDemo starts `carstate demo`, with its files in a directory of the test. The channel ended
// receives the exit code.
func runDemo(ctx context.Context, t *testing.T) (stdout, stderr *testkit.Buffer, ended <-chan int) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	stdout, stderr = new(testkit.Buffer), new(testkit.Buffer)
	exited := make(chan int, 1)
	go func() { exited <- run(ctx, []string{"demo"}, stdout, stderr) }()
	return stdout, stderr, exited
}

// TestDemo_PrintedCommandsWork checks the answers to the curl commands that the demo prints. It
// runs the demo as `make run` does, while another program uses the default query port.
func TestDemo_PrintedCommandsWork(t *testing.T) {
	startsPrograms(t)
	if l, err := net.Listen("tcp", defaults().QueryAddr); err == nil {
		defer l.Close() // if that fails, another process already uses the port
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, stderr, ended := runDemo(ctx, t)
	if err := until(testkit.Patience, func() error {
		if !strings.Contains(stdout.String(), "End with Ctrl-C") {
			return errors.New("the demo is not up")
		}
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	want := []string{
		`{"code":200,"msg":"success","data":{"vid":"NHeN4UqVsohGS55I7LBdh","status":1,"vehicle_runing_state":"3"}}`,
		`{"code":200,"msg":"success","data":{"vid":"NHeN4UqVsohGS55I7LBdh","status":1,"throttle_system":"1"}}`,
	}
	var got []string
	for line := range strings.Lines(stdout.String()) {
		if strings.HasPrefix(line, "curl ") {
			out, err := exec.Command("sh", "-c", line).Output()
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got = append(got, string(out))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("the pasted lines answered %q", got)
	}
	if s := complaints(stderr); s != "" {
		t.Errorf("the demo complained: %s", s)
	}
	cancel()
	if code := <-ended; code != exitOK {
		t.Errorf("the demo ended with %d: %s", code, stderr)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("the demo left %d entries behind: %v", len(left), err)
	}
}

// complaints returns what the demo wrote to standard error. It leaves out the warning that the demo
// took long to end, which is normal on a busy machine.
func complaints(stderr *testkit.Buffer) string {
	return strings.Join(slices.DeleteFunc(slices.Collect(strings.Lines(stderr.String())), func(line string) bool {
		return strings.Contains(line, "background work did not end in time")
	}), "")
}

// TestDemoFleet checks that the demo simulates a fleet, and that the printed token may query it.
// Within a minute, some of its cars must be in a jam, some slow and some driving normally, and at
// least one must have a throttle anomaly. The fleet must end with the demo.
func TestDemoFleet(t *testing.T) {
	startsPrograms(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, stderr, ended := runDemo(ctx, t)
	var developer *client.Client
	if err := until(testkit.Patience, func() error {
		line := regexp.MustCompile(`(?m)^curl -G (\S+)/api/\S+ -d access_token=(\S+)`).FindStringSubmatch(stdout.String())
		if line == nil {
			return errors.New("the demo is not up")
		}
		developer = client.New(line[1], line[2], client.WithPatience(0))
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if !strings.Contains(stdout.String(), "600 simulated cars are on their way too, from vid SIM00000 to SIM00599") {
		t.Errorf("the demo does not tell of its fleet: %s", stdout)
	}
	if err := until(testkit.Patience, func() error {
		driving, throttle := make(map[client.DrivingState]int), make(map[client.ThrottleState]int)
		for i := range 600 {
			vid := fmt.Sprintf("SIM%05d", i)
			d, err := developer.CarDrivingState(ctx, vid)
			if err != nil {
				return err
			}
			a, err := developer.ThrottleSystem(ctx, vid)
			if err != nil {
				return err
			}
			driving[d.State]++
			throttle[a.System]++
		}
		if min(driving[client.TrafficJam], driving[client.SlowDriving], driving[client.NormalDriving]) == 0 ||
			throttle[client.ThrottleAnomaly] == 0 || throttle[client.ThrottleNormal] < 450 {
			return fmt.Errorf("not everything is on the roads: driving %v, throttle %v", driving, throttle)
		}
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	cancel()
	if code := <-ended; code != exitOK || complaints(stderr) != "" {
		t.Errorf("the demo ended with %d: %s", code, stderr)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("the demo left %d entries behind: %v", len(left), err)
	}
}

// TestExternalNATS_SurvivesRestart checks that a service on an external NATS server answers about
// cars that have reported, also after a restart on the same streams. It also checks the metrics
// that only a cluster has.
func TestExternalNATS_SurvivesRestart(t *testing.T) {
	t.Parallel()
	nats := clustertest.StartServer(t).URL()
	dir := t.TempDir()
	p := start(t, dir, "--nats", nats, "--partitions", "4")
	token, key := p.issue(t), p.addSource(t, "gateway")
	if n, err := post(p, key, []string{"carA", "carB"}); n != 2 || err != nil {
		t.Fatalf("%d accepted, %v", n, err)
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
	if err := until(30*time.Second, known); err != nil {
		t.Fatal(err)
	}
	for _, name := range ofClusters {
		if err := until(30*time.Second, func() error {
			if !strings.Contains(p.metrics(t), "\n"+name+"{") {
				return fmt.Errorf("there is no metric %s", name)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	documented(t, p.metrics(t), "A cluster")
	p.stop(t)
	p = start(t, dir, "--nats", nats)
	if err := until(30*time.Second, known); err != nil {
		t.Fatal(err)
	}
}
