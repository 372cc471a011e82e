package vehicle

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// redis is a running redis-server and a connection to it.
type redis struct {
	cmd    *exec.Cmd
	socket string
	conn   net.Conn
	in     *bufio.Reader
	out    *bufio.Writer
}

// startRedis starts a server that only this process can reach and that keeps
// nothing.
func startRedis(ctx context.Context, dir string) (*redis, error) {
	r := &redis{socket: filepath.Join(dir, "redis.sock")}
	r.cmd = exec.CommandContext(ctx, "redis-server", "--port", "0", "--unixsocket", r.socket, "--save", "", "--appendonly", "no", "--dir", dir)
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redis cannot be started: %w: install Debian's redis-server", err)
	}
	for tries := 0; ; tries++ {
		conn, err := net.Dial("unix", r.socket)
		if err == nil {
			r.conn, r.in, r.out = conn, bufio.NewReader(conn), bufio.NewWriter(conn)
			return r, nil
		}
		if tries == 500 || ctx.Err() != nil {
			r.stop()
			return nil, fmt.Errorf("redis does not listen: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *redis) stop() {
	if r.conn != nil {
		r.conn.Close()
	}
	_ = r.cmd.Process.Kill() // an error says that it has ended
	_ = r.cmd.Wait()         // killed, as asked
}

// send writes a command, whose answer is to be read.
func (r *redis) send(words ...string) {
	fmt.Fprintf(r.out, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(r.out, "$%d\r\n%s\r\n", len(w), w)
	}
}

// answer reads a command's answer: a number or a line.
func (r *redis) answer() (string, error) {
	line, err := r.in.ReadString('\n')
	line = strings.TrimSuffix(line, "\r\n")
	if err == nil && (line == "" || line[0] == '-' || line[0] == '*' || line[0] == '$') {
		err = fmt.Errorf("redis answers %q", line)
	}
	if err != nil {
		return "", err
	}
	return line[1:], nil
}

// memoryUsage stores so many vehicles with the command that words make, and
// returns the bytes that Redis says one takes.
func (r *redis) memoryUsage(vehicles int, words func(i int) []string) (float64, error) {
	const together = 1000
	ask := func(first int, words func(i int) []string) (last string, err error) {
		n := min(together, vehicles-first)
		for i := range n {
			r.send(words(first + i)...)
		}
		if err := r.out.Flush(); err != nil {
			return "", err
		}
		for range n {
			if last, err = r.answer(); err != nil {
				return "", err
			}
		}
		return last, nil
	}
	if _, err := ask(0, func(int) []string { return []string{"FLUSHALL"} }); err != nil {
		return 0, err
	}
	for first := 0; first < vehicles; first += together {
		if _, err := ask(first, words); err != nil {
			return 0, err
		}
	}
	usage, err := ask(vehicles-1, func(i int) []string { return []string{"MEMORY", "USAGE", vid(i)} })
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(usage, 64)
}

// asString is a vehicle as a string key whose value is packed text.
func asString(i int) []string {
	v := recordAt(i)
	return []string{"SET", vid(i), fmt.Sprintf("%d,%d,%d,%d", v.driving, v.drivingTime, v.throttle, v.throttleTime)}
}

// asHash is a vehicle as a hash of named fields.
func asHash(i int) []string {
	v := recordAt(i)
	return []string{
		"HSET", vid(i), "driving", fmt.Sprint(v.driving), "driving_time", fmt.Sprint(v.drivingTime),
		"throttle", fmt.Sprint(v.throttle), "throttle_time", fmt.Sprint(v.throttleTime),
	}
}
