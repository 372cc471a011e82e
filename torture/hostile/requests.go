package hostile

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/row"
)

const (
	talkers = 8
	proxied = 4000
	// Exceeded only by a hang or an overloaded machine.
	patience = 40 * time.Second
)

type exchange struct {
	got   []byte
	reset bool // answers may be lost
	alone bool
	late  bool // the server may have given up
	err   error
}

func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", to)
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func talk(ctx context.Context, from, to string, stream []byte, rng *rand.Rand) (x exchange) {
	c, err := dialFrom(ctx, from, to)
	if err != nil {
		return exchange{alone: true, err: err}
	}
	defer c.Close()
	began := time.Now()
	_ = c.SetDeadline(began.Add(patience))
	read := make(chan error, 1)
	go func() {
		var err error
		x.got, err = io.ReadAll(c)
		read <- err
	}()
	sent := send(c, stream, rng)
	if sent == nil {
		sent = c.(*net.TCPConn).CloseWrite()
	}
	x.late = time.Since(began) > 300*time.Millisecond
	err = <-read
	if timedOut(err) {
		x.err = fmt.Errorf("the connection does not end: after %s %d bytes had come", patience, len(x.got))
	} else {
		x.reset = err != nil || sent != nil
	}
	return x
}

func send(c io.Writer, stream []byte, rng *rand.Rand) error {
	pieces := []int{1, 1, 1, 2, 3, 20}[rng.IntN(6)]
	pauses := rng.IntN(8) == 0
	for ; len(stream) > 0; pieces-- {
		n := len(stream)
		if pieces > 1 {
			n = 1 + rng.IntN(len(stream))
		}
		if _, err := c.Write(stream[:n]); err != nil {
			return err
		}
		if stream = stream[n:]; pauses && len(stream) > 0 {
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
		}
	}
	return nil
}

func requests(ctx context.Context, w *world) {
	a, address, total := w.attempt, w.Address(nodeprocess.Query), w.attempt.Count
	var left atomic.Int64
	all := new(row.Tally)
	left.Store(int64(total))
	began := time.Now()
	must.Together(ctx, talkers, func(ctx context.Context, worker int) {
		rng := a.Rand(worker)
		h := w.writer(worker, rng)
		for n := 0; ctx.Err() == nil && left.Load() > 0; n++ {
			v := h.conversation()
			x := talk(ctx, addressOf(worker, n), address, v.stream, rng)
			if ctx.Err() != nil {
				return
			}
			a.Offered(v.requests)
			wrong, answered := w.compare(v, x, func(a *answer) string { return note(all, a) })
			left.Add(int64(-answered))
			a.Acknowledged(answered)
			if wrong != "" {
				a.Wrong("conversation %d of talker %d: %s", n, worker, wrong)
			}
		}
	})
	must.Do(ctx.Err())
	a.Figure("hostile requests", float64(total)/time.Since(began).Seconds(), "1/s")
	a.Figure(messages, float64(all.Of(messages)), "")
	for _, status := range []int{200, 400, 401, 403, 404, 405, 414, 431} {
		name := fmt.Sprintf("answers %d", status)
		a.Figure(name, float64(all.Of(name)), "")
		if total >= 10_000 && all.Of(name) == 0 {
			must.Fail("there are no %s: the generator does not reach them", name)
		}
	}
}

// Different for each n below 1.25 million.
func addressOf(worker, n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 16+worker+talkers*(n/62500%20), n/250%250, 1+n%250)
}

func (w *world) readDocument(ctx context.Context, path string) document {
	d := make(document)
	c := &row.Conn{To: w.Address(nodeprocess.Query), Limit: patience}
	defer c.Close()
	for _, encoding := range []string{"", "gzip"} {
		answer, body := must.Get2(c.Ask(ctx, "GET "+path+" HTTP/1.1\r\nHost: a\r\nAccept-Encoding: "+encoding+"\r\n\r\n"))
		if d[encoding] = body; answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != encoding {
			must.Fail("the documentation at %s gets %d", path, answer.StatusCode)
		}
	}
	return d
}

// behind sends smuggled requests through a proxy, which has its own parser. The proxy's other
// clients must receive their own answers.
func (w *world) behind(ctx context.Context, program, args string) {
	a := w.attempt
	address, stop := w.startProxy(ctx, program, args)
	defer stop()
	invalid := w.refused(ctx, `"invalid_request"`)
	var left, asked, refused atomic.Int64
	left.Store(int64(share(a, proxied, 200)))
	const attackers, askers = 4, 4
	stopAsking := row.Background(ctx, askers, func(asking context.Context, i int) {
		h := w.writer(i, a.Rand(3000+i))
		h.name = "p" + h.name
		c := &row.Conn{To: address, Limit: patience}
		defer c.Close()
		for asking.Err() == nil {
			vid := h.nobody()
			answer, got, err := c.Ask(ctx, row.Question(drivingPath, w.open[0].secret, vid))
			asked.Add(1)
			if err != nil {
				a.Wrong("through %s, a good request is lost: %v", program, err)
				continue
			}
			switch status := answer.StatusCode; {
			case status == http.StatusBadGateway || status == http.StatusGatewayTimeout:
				refused.Add(1)
			case status != http.StatusOK || !strings.HasPrefix(got, `{"code":200,"msg":"success","data":{"vid":"`+vid+`",`):
				a.Wrong("through %s, a query for %s receives %d %.200q", program, vid, status, got)
				return
			}
		}
	})
	defer stopAsking()
	must.Together(ctx, attackers, func(ctx context.Context, i int) {
		rng := a.Rand(2000 + i)
		for h := w.writer(i, rng); left.Add(-1) >= 0 && ctx.Err() == nil; {
			stream := []byte(pick(h, "", h.sound()) + h.smuggle() + h.sound())
			x := talk(ctx, addressOf(60, i), address, stream, rng)
			if ctx.Err() != nil {
				return
			}
			a.Offered(1)
			if x.err != nil {
				a.Wrong("through %s: %v: %s", program, x.err, shown(stream))
			}
		}
	})
	stopAsking()
	a.Offered(int(asked.Load()))
	a.Acknowledged(int(asked.Load() - refused.Load()))
	must.Do(ctx.Err())
	if asked.Load() == refused.Load() {
		must.Fail("%s answers no request", program)
	}
	a.Figure("good requests through "+program+", during smuggling", float64(asked.Load()), "")
	through := w.refused(ctx, `"invalid_request"`)
	a.Figure("requests through "+program+" that the service refused as invalid", through-invalid, "")
	if through == invalid {
		a.Wrong("behind %s the service had nothing to refuse: smuggling was not tried", program)
	}
	// The service closes a connection after ambiguous bytes. The proxy tries a request over others
	// that it keeps, which may be closed, too; then it answers 502.
	part := 100 * float64(refused.Load()) / float64(asked.Load())
	a.AtMost("of them answered by "+program+" with 502 or 504", part, "%", 1)
}

func (w *world) refused(ctx context.Context, reason string) (sum float64) {
	for name, n := range must.Get(w.Metrics(ctx)) {
		if strings.HasPrefix(name, "carstate_queries_total{") && strings.Contains(name, reason) &&
			!strings.Contains(name, `"answered"`) {
			sum += n
		}
	}
	return sum
}

func (w *world) startProxy(ctx context.Context, program, args string) (address string, stop func()) {
	dir := filepath.Join(w.attempt.Dir, program)
	must.Do(os.Mkdir(dir, 0o755))
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	address = l.Addr().String()
	format := must.Get(files.ReadFile(program + ".conf"))
	config := fmt.Sprintf(string(format), dir, w.Address(nodeprocess.Query), address)
	must.Do(l.Close(), os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600))
	running, end := context.WithCancel(ctx)
	cmd := exec.CommandContext(running, program, strings.Fields(strings.ReplaceAll(args, "DIR", dir))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	must.Do(cmd.Start())
	stop = func() {
		end()
		_ = cmd.Wait()
	}
	if err := nodeprocess.Until(ctx, 10*time.Second, func(ctx context.Context) error {
		c, err := dialFrom(ctx, "127.0.0.1", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}); err != nil {
		stop()
		must.Fail("%s does not listen: %w: %.300s", program, err, said.String())
	}
	return address, stop
}

//go:embed attacks.txt nginx.conf haproxy.conf
var files embed.FS

type list struct {
	name  string
	texts []string
}

// {5:x} is a text five times.
var attacks = func() (all []list) {
	repeated := regexp.MustCompile(`\{(\d+):([^}]+)\}`)
	for _, line := range row.Lines(files, "attacks.txt") {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			all = append(all, list{name: name})
			continue
		}
		l := &all[len(all)-1]
		l.texts = append(l.texts, repeated.ReplaceAllStringFunc(line, func(s string) string {
			m := repeated.FindStringSubmatch(s)
			return strings.Repeat(m[2], must.Get(strconv.Atoi(m[1])))
		}))
	}
	return all
}()

type writer struct {
	*world
	*rand.Rand
	serial int
	name   string
}

func (w *writer) from(name string) string {
	return pick(w, attacks[slices.IndexFunc(attacks, func(l list) bool { return l.name == name })].texts...)
}

func pick[T any](w *writer, list ...T) T { return list[w.IntN(len(list))] }

func (w *writer) chance(n int) bool { return w.IntN(n) == 0 }

func (w *writer) nobody() string {
	w.serial++
	return "N" + w.name + "x" + strconv.Itoa(w.serial)
}

func (w *writer) car() string { return pick(w, slices.Sorted(maps.Keys(w.cars))...) }

func (w *writer) sound() string {
	secret, vid := pick(w, w.open...).secret, w.car()
	if w.chance(12) {
		secret = pick(w, w.strange...)
	}
	if w.chance(3) {
		vid = w.nobody()
	}
	params := []string{"access_token=" + w.encoded(secret), "vid=" + w.encoded(vid)}
	if w.chance(4) {
		params = append(params, w.from("parameters"))
	}
	w.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
	target := pick(w, drivingPath, drivingPath, throttlePath) + "?" + strings.Join(params, "&")
	if w.chance(20) {
		target = pick(w, "http://localhost", "HTTPS://cars.example:444") + target
	} else if w.chance(60) {
		target = pick(w, "/", "/openapi.json")
	}
	head := pick(w, "GET", "GET", "GET", "GET", "GET", "HEAD") + " " + target +
		pick(w, " HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.0")
	lines := []string{"Host: " + pick(w, "localhost", "127.0.0.1:8080", "[::1]", "cars.example")}
	for w.chance(3) {
		if h := w.from("headers"); !slices.Contains(lines, h) {
			lines = append(lines, h)
		}
	}
	return head + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func (w *writer) encoded(s string) string {
	if !w.chance(6) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if w.chance(3) {
			fmt.Fprintf(&b, pick(w, "%%%02X", "%%%02x"), s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// Lists named "spoil" replace what matches the pattern in their names, which is @@ in their texts.
var spoilers = slices.DeleteFunc(slices.Clone(attacks), func(l list) bool { return !strings.HasPrefix(l.name, spoil) })

const spoil = "spoil "

func (w *writer) spoil(request string) string {
	if w.chance(10) {
		n := pick(w, 4096, maxLine, maxLine, maxHead, maxHead, maxHead, maxHead+1024, 20000, 40000) + w.IntN(5) - 2
		if line, rest, _ := strings.Cut(request, " HTTP/"); w.chance(2) {
			return line + "&x=" + long(max(0, n-len(line)-len("&x= HTTP/1.1"))) + " HTTP/" + rest
		}
		return strings.TrimSuffix(request, "\r\n") + "X: " + long(max(0, n-len(request)-len("X: \r\n"))) + "\r\n\r\n"
	}
	s := pick(w, spoilers...)
	at := regexp.MustCompile(s.name[len(spoil):]).FindStringIndex(request)
	if at == nil {
		return request
	}
	return request[:at[0]] + strings.ReplaceAll(pick(w, s.texts...), "@@", request[at[0]:at[1]]) + request[at[1]:]
}

func (w *writer) mutate(b []byte) []byte {
	for range 1 + w.IntN(4) {
		if len(b) == 0 {
			return b
		}
		i := w.IntN(len(b))
		j := min(len(b), i+w.IntN(40))
		switch w.IntN(8) {
		case 0:
			b[i] = byte(w.IntN(256))
		case 1:
			const odd = "\x00\r\n \t%&:;=?#\x7f\x80\xff\""
			b = slices.Insert(b, i, odd[w.IntN(len(odd))])
		case 2:
			b = slices.Delete(b, i, j)
		case 3:
			b = slices.Insert(b, j, slices.Clone(b[i:j])...)
		case 4:
			b = b[:i]
		case 5:
			b = bytes.Replace(b, []byte("\r\n"), []byte(w.from("line ends")), 1+w.IntN(2))
		case 6:
			copy(b[i:j], pick(w, bytes.ToUpper, bytes.ToLower)(b[i:j]))
		case 7:
			b = slices.Insert(b, i, []byte(w.from("inserted"))...)
		}
	}
	return b
}

// smuggle hides a request: some bytes are the body of the first request to one parser, and the
// second request to another.
func (w *writer) smuggle() string {
	hidden := row.Question(drivingPath, w.open[0].secret, "S"+w.nobody())
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	chunks := "0\r\n\r\n"
	if w.chance(3) {
		chunks = fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(hidden),
			pick(w, "", ";x=y", "; a=\"\r\n\"", ";"+long(50), " ", "\n"), hidden)
	}
	encoding := w.from("encodings") + "\r\n"
	both := chunks + hidden
	way := pick(w, [][2]string{
		{length(len(hidden)), hidden},
		{length(len(chunks)) + encoding, both},              // CL.TE
		{encoding + length(pick(w, 0, 4, len(both))), both}, // TE.CL
		{encoding + "Transfer-Encoding: x\r\n", both},       // TE.TE
		{encoding + "Transfer-encoding:\r\n", both},         //
		{encoding, both},
		{length(0) + length(len(hidden)), hidden},
		{length(len(hidden)) + length(0), hidden}, //
		{"Expect: 100-continue\r\n" + length(len(hidden)), hidden},
		{"Content-Length: " + pick(w, "+5", "-0", "0x5", " 0 ,", "0,", "5 5", "0a", "0.0", "") + "\r\n", hidden},
		{"X: " + pick(w, "\n", "\r", "\r\n\n", "\n\r\n", "\n\n", "\x00\r\n\r\n") + hidden, ""},
	}...)
	outer := pick(w, "GET", "GET", "HEAD", "POST") + " " + drivingPath + "?vid=" + w.car() + "&access_token=" +
		w.open[0].secret + pick(w, " HTTP/1.1", " HTTP/1.1", " HTTP/1.0")
	return outer + "\r\nHost: localhost\r\n" + way[0] + "\r\n" + way[1]
}

type conversation struct {
	stream   []byte
	requests int
	sound    map[int]bool // offsets of unchanged requests
}

// The answer to the last request shows whether both sides still agree on where one begins.
func (w *writer) conversation() *conversation {
	v := &conversation{requests: 2 + w.IntN(12), sound: make(map[int]bool)}
	mutated := func(text string) string { return string(w.mutate([]byte(text))) }
	for range v.requests - 1 {
		text := w.sound()
		switch k := w.IntN(20); {
		case k < 10:
			v.sound[len(v.stream)] = true
		case k < 14:
			text = w.spoil(text)
		case k < 15:
			text = w.spoil(w.spoil(text))
		case k < 17:
			text = w.smuggle()
		case k < 19:
			text = mutated(text)
		default:
			text = mutated(w.spoil(text))
		}
		if v.stream = append(v.stream, text...); w.chance(15) {
			v.stream = append(v.stream, w.from("noise")...)
		}
	}
	v.sound[len(v.stream)] = true
	v.stream = append(v.stream, row.Question(throttlePath, w.open[0].secret, "Z"+w.nobody())...)
	return v
}

func long(n int) string { return strings.Repeat("x", n) }
