package restart

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running `carstate serve`.
type process struct {
	cmd     *exec.Cmd
	dir     string
	address map[string]string // by flag without dashes
	ready   time.Duration     // from the start of the program to the first "ready"
	cpu     time.Duration     // that it took until then
	ended   chan struct{}
}

// startLimit bounds a start; that of 10 million vehicles takes under a minute.
const startLimit = 10 * time.Minute

// start runs the program on a data directory and waits until it is ready.
func start(ctx context.Context, binary, dir string) (*process, error) {
	args := []string{"serve", "--data-dir", dir, "--log-format", "json"}
	for _, a := range []string{"query", "ingest", "mqtt", "admin"} {
		args = append(args, "--"+a+"-addr", "127.0.0.1:0")
	}
	p := &process{cmd: exec.Command(binary, args...), dir: dir, address: make(map[string]string), ended: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	listening := make(chan struct{})
	last := "nothing"
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			last = lines.Text()
			var l struct{ Msg, For, Address string }
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "listening" {
				p.address[l.For] = l.Address
				if l.For == "admin-addr" { // the last one
					close(listening)
				}
			}
		}
		_, _ = io.Copy(io.Discard, stderr) // so that it is never kept waiting
		_ = p.cmd.Wait()                   // killed or stopped, as asked
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case <-listening:
	case <-p.ended:
		return nil, fmt.Errorf("carstate ended; the last it said: %s", last)
	case <-ctx.Done():
		p.kill()
		return nil, ctx.Err()
	}
	for {
		status, err := get(ctx, p.url("admin-addr")+"/readyz", io.Discard)
		if err == nil && status == http.StatusOK {
			p.ready = time.Since(began)
			seconds, err := p.metric(ctx, "process_cpu_seconds_total")
			if err != nil {
				p.kill()
				return nil, err
			}
			p.cpu = time.Duration(seconds * float64(time.Second))
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("carstate ended; the last it said: %s", last)
		case <-ctx.Done():
			p.kill()
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (p *process) url(listener string) string { return "http://" + p.address[listener] }

// kill ends the program as a power cut would, as far as it can tell.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it has ended
	<-p.ended
}

// stop asks the program to end, and waits.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("carstate ended with %d", code)
	}
	return nil
}

// resident is the memory that the process has now, in bytes.
func (p *process) resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/PID/status has no VmRSS")
}

// metric reads one of the program's own figures.
func (p *process) metric(ctx context.Context, name string) (float64, error) {
	var text strings.Builder
	status, err := get(ctx, p.url("admin-addr")+"/metrics", &text)
	if err != nil || status != http.StatusOK {
		return 0, fmt.Errorf("the metrics cannot be read: %d, %w", status, err)
	}
	for line := range strings.Lines(text.String()) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

func get(ctx context.Context, url string, to io.Writer) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(to, resp.Body)
	return resp.StatusCode, err
}
