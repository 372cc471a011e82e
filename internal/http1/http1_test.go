package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/test/testkit"
)

// echo answers with the path; /long exceeds what is collected before it is sent, and /wait waits
// for the test.
type echo struct {
	http1.Response
	waits, goOn chan struct{}
}

func (e *echo) answer(r *http1.Request, f http1.Fault, _ time.Time) *http1.Response {
	e.Reset()
	if e.Status = 400; f != http1.None {
		return &e.Response
	}
	e.Status, e.Body = 200, append(e.Body, r.Target...)
	switch string(r.Target) {
	case "/wait":
		e.waits <- struct{}{}
		<-e.goOn
	case "/long":
		e.Body = append(e.Body, make([]byte, 10<<10)...)
	}
	return &e.Response
}

func serve(t *testing.T, handler func() http1.Handler) (s *http1.Server, address string) {
	s = http1.New(http1.Config{NewHandler: handler,
		Listen: listen.Config{Max: 1, Log: slog.New(slog.DiscardHandler)}})
	l, served := testkit.Listen(t), make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		testkit.NoError(t, s.Shutdown(context.Background()))
		<-served
	})
	return s, l.Addr().String()
}

// Nothing of one connection is sent on the next.
func TestEvicted_LeavesNothing(t *testing.T) {
	waits, goOn := make(chan struct{}), make(chan struct{})
	s, address := serve(t, func() http1.Handler { return (&echo{waits: waits, goOn: goOn}).answer })
	for range 20 { // an exchange is not always used again at once
		c := testkit.Dial(t, address)
		_, _ = io.WriteString(c, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n"+
			"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		<-waits
		next := testkit.Dial(t, address) // evicts c
		testkit.Await(t, "it is accepted", func() bool { return s.Guard.Count(listen.Silent) == 1 })
		goOn <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
		_, _ = io.WriteString(next, "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if b, err := io.ReadAll(next); err != nil || strings.Count(string(b), "HTTP/1.1 200") != 1 ||
			!strings.HasSuffix(string(b), "\r\n\r\n/next") {
			t.Fatalf("got %q, %v, want only the answer to /next", b, err)
		}
	}
}

func answers(t *testing.T, pieces ...[]byte) string {
	_, address := serve(t, func() http1.Handler { return new(echo).answer })
	c := testkit.Dial(t, address)
	for _, piece := range pieces {
		_, _ = c.Write(piece)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	all, err := io.ReadAll(c)
	testkit.NoError(t, err)
	return string(all)
}

// Half a head is refused once no more can arrive.
func TestHeads_AnyArrival(t *testing.T) {
	const head = "GET / HTTP/1.1\r\nHost: b\r\n"
	for text, want := range map[string][2]int{ // answers with 200 and 400
		"":                         {0, 0},
		head:                       {0, 1},
		head + "\r":                {0, 1},
		head + "\r\n":              {1, 0},
		head + "\r\nGET":           {1, 1},
		"GET / HTTP/1.1\n\nGET":    {0, 1},
		head + "A: b\n\r\n" + head: {0, 1},
	} {
		for _, pieces := range [][][]byte{{[]byte(text)}, bytes.SplitAfter([]byte(text), nil)} {
			all := answers(t, pieces...)
			if got := [2]int{strings.Count(all, "/1.1 200"), strings.Count(all, "/1.1 400")}; got != want {
				t.Errorf("%q in %d pieces: got %v answers with 200 and 400, want %v", text, len(pieces), got, want)
			}
		}
	}
}

func TestDates_MatchNetHTTP(t *testing.T) {
	var w http1.Response
	noon := time.Date(2026, 11, 20, 12, 0, 0, 750e6, time.UTC)
	for _, at := range []time.Time{
		noon, noon.Add(time.Second), noon.Add(12 * time.Hour), noon.Add(-40 * time.Hour),
		time.Unix(0, 0), time.Unix(-1, 0), time.Date(2028, 2, 29, 23, 59, 59, 999e6, time.FixedZone("", 7200)),
	} {
		w.Reset()
		w.SetTime("Date", at)
		if got, want := string(w.Headers), "Date: "+at.UTC().Format(http.TimeFormat)+"\r\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

var headEnd = regexp.MustCompile(`\n\r?\n`)

// net/http accepts what we accept, with the same parts and the same end.
func FuzzRequests(f *testing.F) {
	const line = "GET /path?a=b HTTP/1.1\r\n"
	for _, seed := range []string{
		"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/9.9\r\nHost: x\r\n\r\n", "GET http://[/ HTTP/1.1\r\nHost: x\r\n\r\n",
		line + "Expect: 100-continue\r\nContent-Length: 5\r\nHost: x\r\n\r\n", line + "Cookie: a\r\n b\r\nHost: x\r\n\r\n",
		line + "Host: x\r\n\r\n" + line + "Host: x\r\n\r\n",
		"\r\n\r\n" + line + "Host: x\r\n\r\n",
		line + "Host: x\r\nA:\tb \r\nConnection: close\r\n\r\n",
		"GET http://x/y HTTP/1.0\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		line + "Host: x\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + line + "Host: x\r\n\r\n",
		line + "Host: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		line + "Host: x\r\nContent-Length: 0;\r\n\r\n",
		line + "Host: x\r\nContent-Length: \t0\t\r\nTransfer\x00-Encoding: chunked\r\n\r\n",
		"\xef\xbb\xbf" + line + "Host: x\r\n\r\n",
		"GET http://me@x/y?vid=A HTTP/1.0\r\nHost: \r\n\r\n" + line,
		"GET 1:2 HTTP/1.1\r\nHost: :80\r\nConnection: ,close,\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours := bytes.TrimLeft(b, "\r\n")
		end := headEnd.FindIndex(ours)
		var r http1.Request
		if end == nil || r.Parse(ours[:end[1]]) != http1.None {
			return
		}
		n := end[1]
		in := bufio.NewReader(bytes.NewReader(ours))
		theirs, err := http.ReadRequest(in)
		if err != nil {
			// It checks more of targets and hosts than we need.
			if strings.Contains(err.Error(), "parse ") || strings.Contains(err.Error(), "malformed Host") {
				return
			}
			t.Fatalf("%q: got %v of net/http, want no error", ours[:n], err)
		}
		if theirs.Method != string(r.Method) || theirs.RequestURI != string(r.Target) ||
			theirs.Proto != string(r.Version) {
			t.Errorf("%q: got %q %q %q, want %q %q %q as net/http", ours[:n], r.Method, r.Target, r.Version,
				theirs.Method, theirs.RequestURI, theirs.Proto)
		}
		if theirs.ContentLength != 0 || len(theirs.TransferEncoding) > 0 {
			t.Errorf("%q: got a body by net/http, want none", ours[:n])
		}
		rest, _ := io.ReadAll(in)
		if want := ours[n:]; !bytes.Equal(rest, want) {
			t.Errorf("%q: got %d bytes left, want %d as net/http", ours[:n], len(want), len(rest))
		}
	})
}

func TestParse_Faults(t *testing.T) {
	for head, want := range map[string]http1.Fault{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":                                                    http1.None,
		"GET / HTTP/1.0\r\n\r\n":                                                               http1.None,
		"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n":                                         http1.Host,
		"GET / HTTP/1.1\r\n\r\n":                                                               http1.Host,
		"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n":                                                http1.Host,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n":                                         http1.Host,
		"GET / HTTP/2.0\r\nHost: a\r\n\r\n":                                                    http1.Version,
		"GET /\r\nHost: a\r\n\r\n":                                                             http1.NotHTTP,
		"GET / HTTP/1.1\nHost: a\r\n\r\n":                                                      http1.NotHTTP,
		"GET / HTTP/1.1\r\nHost: a\n\r\n":                                                      http1.LineEnd,
		"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n":                                              http1.Folded,
		"GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n":                                       http1.Expect,
		"GET / HTTP/1.1\r\nHost: a\r\nA b: x\r\n\r\n":                                          http1.HeaderName,
		"GET / HTTP/1.1\r\nHost: a\r\nA: \x00\r\n\r\n":                                         http1.NotHTTP,
		"GET /" + strings.Repeat("a", http1.MaxLine) + " HTTP/1.1\r\nHost: a\r\n\r\n":          http1.LineSize,
		"GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", http1.MaxHead) + "\r\n\r\n":   http1.HeadSize,
		"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n": http1.Body,
	} {
		if got := new(http1.Request).Parse([]byte(head)); got != want {
			t.Errorf("%.99q: got fault %q, want %q", head, got, want)
		}
	}
}
