package query

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"carstate/internal/testkit"
)

// TestMain also checks that no goroutine outlives the servers.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (f *fixture) line(vid string) string {
	return "GET " + drivingPath + "?access_token=" + f.secrets["TOKEN"] + "&vid=" + vid + " HTTP/1.1\r\n"
}

func (f *fixture) query(vid string) string { return f.line(vid) + "Host: x\r\n\r\n" }

func TestOverARealClient(t *testing.T) {
	f := newFixture(t)
	r := start(t, f.Config)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 3 {
		resp, err := client.Get("http://" + r.addr + throttlePath + "?vid=CarFaulty&access_token=" + f.secrets["TOKEN"])
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		const want = `{"code":200,"msg":"success","data":{"vid":"CarFaulty","status":1,"throttle_system":"0"}}`
		if string(body) != want {
			t.Errorf("got %s", body)
		}
	}
	// The answer that refuses a large body must reach a client that is still sending the body.
	resp, err := client.Post("http://"+r.addr+drivingPath, "text/plain", bytes.NewReader(make([]byte, 200<<10)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestServer_TLS(t *testing.T) {
	f := newFixture(t)
	cert, roots := selfSigned(t)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	r := start(t, f.Config)
	conf := &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2", "http/1.1"}}
	dial := func() *tls.Conn { return tls.Client(r.dial(t), conf) }

	c := dial()
	io.WriteString(c, f.query("CarJam")+f.query("CarSlow"))
	in := bufio.NewReader(c)
	for _, want := range []string{`"3"`, `"2"`} {
		if a := readAnswer(t, in, false); a.status != "HTTP/1.1 200 OK" || !strings.Contains(a.body, want) {
			t.Errorf("got %s", a.raw)
		}
	}
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("negotiated %q", p)
	}
	c.Close()

	// The same answer must also reach a client over TLS, and then the connection must end.
	c = dial()
	io.WriteString(c, f.line("CarJam")+"Host: x\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 50000))
	in = bufio.NewReader(c)
	if a := readAnswer(t, in, false); a.status != "HTTP/1.1 400 Bad Request" {
		t.Errorf("got %s", a.raw)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after it: %v", err)
	}

	// A client that speaks plain HTTP, and one that offers only HTTP/2.
	p := r.dial(t)
	io.WriteString(p, f.query("CarJam"))
	if b, _ := io.ReadAll(p); bytes.Contains(b, []byte("CarJam")) {
		t.Errorf("plain HTTP was answered: %q", b)
	}
	h2 := tls.Client(r.dial(t), &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}})
	if err := h2.Handshake(); err == nil {
		t.Error("a client that speaks HTTP/2 only was accepted")
	}
}

// TestSlowHeadOverTLS checks that a client that sends half a head gets an answer when its time is
// up, although the deadline for writing that was set for the handshake has passed by then. A silent
// connection must be closed without an answer.
func TestSlowHeadOverTLS(t *testing.T) {
	f := newFixture(t)
	cert, roots := selfSigned(t)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	f.HeadTimeout, f.WriteTimeout = 1500*time.Millisecond, time.Second
	r := start(t, f.Config)
	conf := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	half, silent := tls.Client(r.dial(t), conf), tls.Client(r.dial(t), conf)
	if err := silent.Handshake(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(half, f.line("CarJam"))
	if a := readAnswer(t, bufio.NewReader(half), false); a.status != "HTTP/1.1 408 Request Timeout" {
		t.Errorf("got %s", a.raw)
	}
	if b, err := io.ReadAll(silent); err != nil || len(b) > 0 {
		t.Errorf("a silent client got %q, %v", b, err)
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

func TestSlowHead(t *testing.T) {
	f := newFixture(t)
	f.HeadTimeout = 300 * time.Millisecond
	r := start(t, f.Config)
	began := time.Now()
	c := r.dial(t)
	// Single bytes at intervals must not extend the deadline.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, b := range []byte(f.query("CarJam") + f.query("CarJam")) {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}
	})
	in := bufio.NewReader(c)
	a := readAnswer(t, in, false)
	if a.status != "HTTP/1.1 408 Request Timeout" || !strings.Contains(a.raw, "\r\nConnection: close\r\n") {
		t.Errorf("got %s", a.raw)
	}
	if took := time.Since(began); took < f.HeadTimeout || took > 10*f.HeadTimeout {
		t.Errorf("after %s", took)
	}
	close(stop)
	wg.Wait()

	// A silent client gets no answer.
	silent := r.dial(t)
	if b, err := io.ReadAll(silent); err != nil || len(b) > 0 {
		t.Errorf("a silent client got %q, %v", b, err)
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	f := newFixture(t)
	f.IdleTimeout = 100 * time.Millisecond
	r := start(t, f.Config)
	c := r.dial(t)
	io.WriteString(c, f.query("CarJam"))
	in := bufio.NewReader(c)
	readAnswer(t, in, false)
	if b, err := io.ReadAll(in); err != nil || len(b) > 0 {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestClientThatDoesNotRead(t *testing.T) {
	f := newFixture(t)
	f.WriteTimeout = 200 * time.Millisecond
	r := start(t, f.Config)
	c := r.dial(t)
	c.SetDeadline(time.Now().Add(20 * time.Second))
	many := strings.Repeat(f.query("CarJam"), 1000)
	for {
		if _, err := io.WriteString(c, many); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the server waits for ever for a client that does not read")
			}
			return
		}
	}
}

func TestTooManyInFlight(t *testing.T) {
	f := newFixture(t)
	var asked atomic.Int64
	hold := make(chan struct{})
	f.MaxInFlight = 2
	f.Ready = func(time.Time) error {
		asked.Add(1)
		<-hold
		return nil
	}
	r := start(t, f.Config)
	var held []net.Conn
	for range f.MaxInFlight {
		c := r.dial(t)
		io.WriteString(c, f.query("CarJam"))
		held = append(held, c)
	}
	testkit.Await(t, "both are in progress", func() bool { return asked.Load() == 2 })

	c := r.dial(t)
	in := bufio.NewReader(c)
	io.WriteString(c, f.query("CarJam"))
	a := readAnswer(t, in, false)
	if a.status != "HTTP/1.1 503 Service Unavailable" || !strings.Contains(a.raw, "\r\nRetry-After: 1\r\n") ||
		!strings.Contains(a.body, "overloaded") {
		t.Errorf("got %s", a.raw)
	}
	close(hold)
	for _, h := range held {
		if a := readAnswer(t, bufio.NewReader(h), false); a.status != "HTTP/1.1 200 OK" {
			t.Errorf("got %s", a.raw)
		}
	}
	testkit.Await(t, "none is in progress", func() bool { return r.inFlight.Load() == 0 })
	io.WriteString(c, f.query("CarJam"))
	if a := readAnswer(t, in, false); a.status != "HTTP/1.1 200 OK" {
		t.Errorf("afterwards got %s", a.raw)
	}
}

// gathered returns the sum of a metric over all series that have the given label values.
func gathered(t *testing.T, reg *prometheus.Registry, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metric:
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if w, ok := labels[l.GetName()]; ok && w != l.GetValue() {
					continue metric
				}
			}
			sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func TestMetrics_CountOutcomes(t *testing.T) {
	f := newFixture(t)
	reg := prometheus.NewRegistry()
	f.Registry = reg
	r := start(t, f.Config)
	c := r.dial(t)
	in := bufio.NewReader(c)
	for _, q := range []string{f.query("CarJam"), f.query("CarJam"), f.query("CarOld"),
		"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "nonsense\r\n\r\n"} {
		io.WriteString(c, q)
		readAnswer(t, in, false)
	}
	for _, w := range []struct {
		operation, outcome string
		n                  float64
	}{
		{"car_driving_state", "answered", 2},
		{"car_driving_state", "stale", 1},
		{"none", "not_found", 1},
		{"none", "invalid_request", 1},
		{"throttle_system", "answered", 0},
	} {
		labels := map[string]string{"operation": w.operation, "outcome": w.outcome}
		if n := gathered(t, reg, "carstate_queries_total", labels); n != w.n {
			t.Errorf("queries of %s with outcome %s: got %v, want %v", w.operation, w.outcome, n, w.n)
		}
	}
	if n := gathered(t, reg, "carstate_query_duration_seconds", nil); n != 3 {
		t.Errorf("got %v durations, want 3", n)
	}
}

func TestShutdown_DrainsRequests(t *testing.T) {
	f := newFixture(t)
	asked, hold := make(chan struct{}, 1), make(chan struct{})
	var later atomic.Bool
	f.Ready = func(time.Time) error {
		if !later.Swap(true) {
			asked <- struct{}{}
			<-hold
		}
		return nil
	}
	r := start(t, f.Config)
	silent := r.dial(t)
	busy := r.dial(t)
	io.WriteString(busy, f.query("CarJam"))
	<-asked
	idle := r.dial(t)
	idleIn := bufio.NewReader(idle)
	io.WriteString(idle, f.query("CarSlow"))
	readAnswer(t, idleIn, false)

	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ended <- r.Shutdown(ctx)
	}()
	for name, c := range map[string]io.Reader{"silent": silent, "idle": idleIn} {
		if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
			t.Errorf("the %s connection got %q, %v", name, b, err)
		}
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("connections without a request were closed after %s", took)
	}
	if err := <-r.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("a connection was accepted after the shutdown began")
	}
	select {
	case err := <-ended:
		t.Fatalf("the shutdown ended (%v) with a request in progress", err)
	default:
	}
	close(hold)
	in := bufio.NewReader(busy)
	if a := readAnswer(t, in, false); a.status != "HTTP/1.1 200 OK" ||
		!strings.Contains(a.raw, "\r\nConnection: close\r\n") {
		t.Errorf("the request in progress got %s", a.raw)
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown returned %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(ln); !errors.Is(err, ErrStopped) {
		t.Errorf("serving again: %v", err)
	}
}

// pipes is a listener. If its channel one has a connection, Accept returns this connection;
// otherwise Accept accepts a connection. The connection in the channel is a pipe, on which a write
// blocks until the other end reads.
type pipes struct {
	net.Listener
	one chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.one:
		return c, nil
	default:
		return p.Listener.Accept()
	}
}

func TestShutdown_CutsAtDeadline(t *testing.T) {
	f := newFixture(t)
	f.WriteTimeout = time.Minute
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, theirs := net.Pipe()
	defer c.Close()
	one := make(chan net.Conn, 1)
	one <- theirs
	s := New(f.Config)
	r := &running{Server: s, done: make(chan error, 1)}
	go func() { r.done <- s.Serve(&pipes{ln, one}) }()
	io.WriteString(c, f.query("CarJam"))
	testkit.Await(t, "the request has arrived", func() bool { return r.opened() == 1 && r.waiting() == 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v", err)
	}
	if err := <-r.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	testkit.Await(t, "the connection is gone", func() bool { return r.opened() == 0 })
}

// TestShutdown_ClosesHalfHeads checks that a shutdown does not wait for the rest of a head, because
// half a head is not a request.
func TestShutdown_ClosesHalfHeads(t *testing.T) {
	f := newFixture(t)
	f.HeadTimeout = time.Minute
	r := start(t, f.Config)
	c := r.dial(t)
	in := bufio.NewReader(c)
	io.WriteString(c, f.query("CarJam")+f.line("CarJam"))
	readAnswer(t, in, false)
	testkit.Await(t, "it waits for the rest", func() bool { return r.waiting() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown returned %v", err)
	}
	if b, err := io.ReadAll(in); err != nil || len(b) > 0 {
		t.Errorf("it got %q, %v", b, err)
	}
}

func TestPanic_InRequestEndsConnectionOnly(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.Log = slog.New(slog.NewTextHandler(&log, nil))
	var bug atomic.Bool
	bug.Store(true)
	f.Ready = func(time.Time) error {
		if bug.Swap(false) {
			panic(fmt.Sprintf("bug near %s", f.secrets["TOKEN"]))
		}
		return nil
	}
	r := start(t, f.Config)
	c := r.dial(t)
	in := bufio.NewReader(c)
	io.WriteString(c, f.query("CarJam"))
	if a := readAnswer(t, in, false); a.status != "HTTP/1.1 503 Service Unavailable" ||
		!strings.Contains(a.raw, "\r\nConnection: close\r\n") {
		t.Errorf("got %s", a.raw)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after it: %v", err)
	}
	bug.Store(true)
	c = r.dial(t)
	in = bufio.NewReader(c)
	io.WriteString(c, strings.Replace(f.query("CarJam"), "GET", "HEAD", 1))
	if a := readAnswer(t, in, true); a.status != "HTTP/1.1 503 Service Unavailable" {
		t.Errorf("got %s", a.raw)
	}
	if b, err := io.ReadAll(in); err != nil || len(b) > 0 {
		t.Errorf("after the head: %q, %v", b, err)
	}
	c = r.dial(t)
	io.WriteString(c, f.query("CarJam"))
	if a := readAnswer(t, bufio.NewReader(c), false); a.status != "HTTP/1.1 200 OK" {
		t.Errorf("got %s", a.raw)
	}
	if s := log.String(); !strings.Contains(s, "this is a bug") || strings.Contains(s, f.secrets["TOKEN"]) {
		t.Errorf("logged %s", s)
	}
}

// TestPanic_InHandshakeEndsConnectionOnly checks that a panic outside of any request ends only the
// connection on which it happened.
func TestPanic_InHandshakeEndsConnectionOnly(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.Log = slog.New(slog.NewTextHandler(&log, nil))
	cert, roots := selfSigned(t)
	var once sync.Once
	f.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		once.Do(func() { panic("bug") })
		return &cert, nil
	}}
	r := start(t, f.Config)
	conf := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	if err := tls.Client(r.dial(t), conf).Handshake(); err == nil {
		t.Error("the handshake succeeded")
	}
	c := tls.Client(r.dial(t), conf)
	io.WriteString(c, f.query("CarJam"))
	if a := readAnswer(t, bufio.NewReader(c), false); a.status != "HTTP/1.1 200 OK" {
		t.Errorf("got %s", a.raw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if s := log.String(); !strings.Contains(s, "this is a bug") {
		t.Errorf("logged %s", s)
	}
}
