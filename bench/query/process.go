package query

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
)

// process is a program that the harness started. It is killed when the harness ends.
type process struct {
	name   string
	cmd    *exec.Cmd
	end    context.CancelFunc
	reader *bufio.Reader // its standard output
}

// launch starts the program argv[0] with the arguments that follow, on one core and in the
// directory dir. When ctx ends, the program receives SIGTERM, and is killed if it still runs six
// seconds later.
func launch(ctx context.Context, name string, core int, dir string, argv ...string) *process {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		must.Fail("%s is not installed: install its Debian package and try again", argv[0])
	}
	p := &process{name: name}
	ctx, p.end = context.WithCancel(ctx)
	p.cmd = exec.CommandContext(ctx, "taskset", append([]string{"--cpu-list", strconv.Itoa(core), path}, argv[1:]...)...)
	p.cmd.Dir, p.cmd.Stderr = dir, os.Stderr
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 6 * time.Second // after that it is killed
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.reader = bufio.NewReader(out)
		err = begin(p.cmd)
	}
	if err != nil {
		p.end()
		must.Fail("%s does not start: %w", name, err)
	}
	return p
}

// begin starts a process that is killed when this one ends.
func begin(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return c.Start()
}

// line reads the next line of the program's standard output. It ends the measurement if the program
// has ended.
func (p *process) line() string {
	s, err := p.reader.ReadString('\n')
	if err != nil {
		must.Do(p.failed())
	}
	return strings.TrimSpace(s)
}

// failed returns the error of a program that ended or does not work.
func (p *process) failed() error {
	return fmt.Errorf("%s does not run; see its output above", p.name)
}

func (p *process) stop() {
	p.end()
	_ = p.cmd.Wait() // it was ended on purpose
}

// freePort returns a port that is free now. If another program takes the port before the peer does,
// the peer reports an error.
func freePort() int {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// cores returns two cores that this process may use: one for the server and one for the generator.
// It ends the measurement if there are fewer.
func cores() (server, generator int) {
	var found []int
	for core := 0; core < 1024 && len(found) < 2; core++ {
		if exec.Command("taskset", "--cpu-list", strconv.Itoa(core), "true").Run() == nil {
			found = append(found, core)
		}
	}
	if len(found) < 2 {
		must.Fail("taskset and two processor cores are needed: one for the server, one for the generator")
	}
	return found[0], found[1]
}
