package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
)

// A latency counts from when the request was due, so a stall delays all that become due during it.
type generated struct {
	Sent                int
	Took, P50, P99, Max time.Duration
}

const connections = 64

// The generator polls, so that neither timers nor a scheduler delay a request.
func generateMain(args []string, stdout io.Writer) {
	flags := flag.NewFlagSet("generate", flag.ContinueOnError)
	addr := flags.String("addr", "", "")
	targets := flags.String("targets", "", "")
	rate := flags.Float64("rate", 0, "requests a second; 0: as fast as they are answered")
	seconds := flags.Float64("seconds", 1, "")
	must.Do(flags.Parse(args))
	text := must.Get(os.ReadFile(*targets))
	var requests [][]byte
	for target := range bytes.Lines(text) {
		requests = append(requests, []byte("GET "+string(bytes.TrimSpace(target))+" HTTP/1.1\r\nHost: "+*addr+"\r\n\r\n"))
	}
	r := must.Get(generate(*addr, requests, *rate, time.Duration(*seconds*float64(time.Second))))
	must.Do(json.NewEncoder(stdout).Encode(r))
}

type wire struct {
	fd   int
	busy bool
	due  time.Duration
	in   []byte
	buf  [16 << 10]byte
}

// generate sends requests at even intervals, or, if rate is 0, as soon as a connection is idle. It
// fails if an answer is not 200, or not all have arrived at 2*during + 10 s.
func generate(addr string, requests [][]byte, rate float64, during time.Duration) (r generated, err error) {
	defer must.Catch(&err)
	if len(requests) == 0 {
		return r, errors.New("nothing to send")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	epoll := must.Get(syscall.EpollCreate1(syscall.EPOLL_CLOEXEC))
	defer func() { _ = syscall.Close(epoll) }()
	wires := make([]*wire, connections)
	free := make([]int, 0, connections)
	for i := range wires {
		c := must.Get(net.Dial("tcp", addr))
		f, err := c.(*net.TCPConn).File()
		c.Close()
		must.Do(err)
		defer f.Close()
		w := &wire{fd: int(f.Fd())}
		wires[i], free = w, append(free, i)
		e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}
		must.Do(syscall.SetNonblock(w.fd, true), syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, w.fd, &e))
	}

	total := int(rate * during.Seconds())
	if rate == 0 {
		total = math.MaxInt
	}
	var took []time.Duration
	events := make([]syscall.EpollEvent, connections)
	begin := time.Now()
	for sent := 0; len(took) < total; {
		now := time.Since(begin)
		if now > 2*during+10*time.Second {
			return r, fmt.Errorf("%d of %d requests were not answered", sent-len(took), sent)
		}
		if rate == 0 && now > during {
			total = sent
		}
		for sent < total && len(free) > 0 {
			due := now
			if rate > 0 {
				due = time.Duration(float64(sent) / rate * float64(time.Second))
			}
			if due > now {
				break
			}
			w := wires[free[len(free)-1]]
			free = free[:len(free)-1]
			w.busy, w.due, w.in = true, due, w.buf[:0]
			// One write sends all of it.
			request := requests[sent%len(requests)]
			if n, err := syscall.Write(w.fd, request); err != nil || n != len(request) {
				return r, fmt.Errorf("cannot send a request: %w", err)
			}
			sent++
		}
		n, err := syscall.EpollWait(epoll, events, 0)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return r, err
		}
		for _, e := range events[:max(n, 0)] {
			w := wires[e.Fd]
			done := w.read()
			if done {
				w.busy = false
				took = append(took, time.Since(begin)-w.due)
				free = append(free, int(e.Fd))
			}
		}
	}
	r.Sent, r.Took = total, time.Since(begin)
	r.P50, r.P99, r.Max = report.Quantile(took, 0.5), report.Quantile(took, 0.99), slices.Max(took)
	return r, nil
}

func (w *wire) read() bool {
	n, err := syscall.Read(w.fd, w.buf[len(w.in):])
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return false
	}
	if err != nil || n == 0 || !w.busy {
		must.Fail("the server closed a connection or sent unrequested bytes: %w",
			errors.Join(err, io.ErrUnexpectedEOF))
	}
	w.in = w.buf[:len(w.in)+n]
	head, body, ok := bytes.Cut(w.in, []byte("\r\n\r\n"))
	if !ok {
		return false
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		must.Fail("an answer was not 200")
	}
	return len(body) >= contentLength(head)
}

func contentLength(head []byte) (n int) {
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("content-length")) {
			must.Get(fmt.Sscan(string(value), &n))
			return n
		}
	}
	must.Fail("an answer has no Content-Length")
	return 0
}
