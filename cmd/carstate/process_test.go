package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"carstate/internal/stream/streamtest"
	"carstate/internal/testkit"
)

// binary is the built program, made once for all tests.
var binary string

func TestMain(m *testing.M) {
	if urls := os.Getenv(ownerVariable); urls != "" {
		if err := ownUntilAsked(urls); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "carstate-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "carstate")
	// With the race detector, so that a race in the program ends a test too.
	build := exec.Command("go", "build", "-race", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the program cannot be built: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	streamtest.RemoveServerBinary()
	os.Exit(code)
}

// process is a running `carstate serve`.
type process struct {
	cmd     *exec.Cmd
	dir     string
	address map[string]string // by flag without dashes
	log     *testkit.Buffer
	ended   chan struct{}
}

// start runs `carstate serve` on free ports and waits until it is ready.
func start(t *testing.T, dir string, flags ...string) *process {
	t.Helper()
	p, err := startProcess(dir, os.Environ(), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of carstate:\n%s", p.log)
		}
	})
	return p
}

func startProcess(dir string, env []string, flags ...string) (*process, error) {
	args := []string{"serve", "--data-dir", dir, "--log-format", "json"}
	for _, a := range []string{"query", "ingest", "mqtt", "admin"} {
		args = append(args, "--"+a+"-addr", "127.0.0.1:0")
	}
	p := &process{dir: dir, address: make(map[string]string), log: new(testkit.Buffer), ended: make(chan struct{})}
	p.cmd = exec.Command(binary, append(args, flags...)...)
	// Otherwise the race detector makes a program end a second later.
	p.cmd.Env = append(env, "GORACE=atexit_sleep_ms=0")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	listening := make(chan struct{})
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(io.TeeReader(stderr, p.log))
		for lines.Scan() {
			if m := listeningLine.FindSubmatch(lines.Bytes()); m != nil {
				p.address[string(m[1])] = string(m[2])
				if string(m[1]) == "admin-addr" { // the last one
					close(listening)
				}
			}
		}
		p.cmd.Wait()
	}()
	select {
	case <-listening:
	case <-p.ended:
		return nil, fmt.Errorf("carstate ended: %s", p.log)
	case <-time.After(30 * time.Second):
		p.kill()
		return nil, fmt.Errorf("carstate did not listen: %s", p.log)
	}
	return p, until(30*time.Second, func() error {
		resp, err := http.Get("http://" + p.address["admin-addr"] + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			return fmt.Errorf("not ready: %s", text)
		}
		return nil
	})
}

// listeningLine tells an address, in both formats of the log.
var listeningLine = regexp.MustCompile(`msg"?[:=]"?listening"?[ ,]"?for"?[:=]"?([\w-]+)"?[ ,]"?address"?[:=]"?([^\s",]+)`)

// kill ends the process as a power cut would, as far as the program can tell.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// stop asks the process to end and reports how long that took.
func (p *process) stop(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("carstate ended with %d:\n%s", code, p.log)
	}
	return time.Since(begin)
}

// env is the environment in which commands find the process.
func (p *process) env() []string {
	return append(os.Environ(),
		"CARSTATE_DATA_DIR="+p.dir,
		"CARSTATE_QUERY_ADDR="+p.address["query-addr"],
		"CARSTATE_INGEST_ADDR="+p.address["ingest-addr"],
		"CARSTATE_ADMIN_ADDR="+p.address["admin-addr"])
}

// carstate runs a command against the process and returns its output.
func (p *process) carstate(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = p.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("carstate %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// issue issues a token for all vehicles and returns its secret.
func (p *process) issue(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Ada"))
}

// addSource adds a source for all vehicles and returns its key.
func (p *process) addSource(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(p.carstate(t, "source", "add", name, "--vehicles", "all"))
}

// answer is what a query was answered.
type answer struct {
	http     int
	status   int
	driving  string
	throttle string
	reason   string
	modified time.Time
}

// ask asks one of the two operations.
func (p *process) ask(path, token, vid string) (answer, error) {
	resp, err := http.Get("http://" + p.address["query-addr"] + path + "?" + url.Values{"access_token": {token}, "vid": {vid}}.Encode())
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	var body struct {
		Data struct {
			Status   int    `json:"status"`
			Driving  string `json:"vehicle_runing_state"`
			Throttle string `json:"throttle_system"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return answer{}, err
	}
	a := answer{http: resp.StatusCode, status: body.Data.Status, driving: body.Data.Driving, throttle: body.Data.Throttle, reason: resp.Header.Get("Carstate-Reason")}
	a.modified, _ = http.ParseTime(resp.Header.Get("Last-Modified"))
	return a, nil
}

// until asks again and again until there is no error.
func until(limit time.Duration, ask func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("still after %s: %w", limit, err)
		case <-tick.C:
		}
	}
}
