package query

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/listen"
)

func TestHeadEnd_AnyArrival(t *testing.T) {
	for text, want := range map[string]int{
		"":                                  0,
		"GET / HTTP/1.1\r\n":                0,
		"GET / HTTP/1.1\r\n\r":              0,
		"GET / HTTP/1.1\r\n\r\n":            18,
		"GET / HTTP/1.1\r\nA: b\r\n\r\nGET": 24,
		"GET / HTTP/1.1\n\nGET":             16,
		"GET / HTTP/1.1\r\nA: b\n\r\nGET":   23,
	} {
		if got, _ := headEnd([]byte(text), 0); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		// If the text arrives byte by byte, the end must be found at the same index.
		scanned, got := 0, 0
		for n := 0; n <= len(text) && got == 0; n++ {
			got, scanned = headEnd([]byte(text[:n]), scanned)
		}
		if got != want {
			t.Errorf("%q byte by byte: %d, want %d", text, got, want)
		}
	}
}

func TestDates_MatchNetHTTP(t *testing.T) {
	var d dates
	for _, at := range []time.Time{
		noon, noon.Add(time.Second), noon.Add(12 * time.Hour), noon.Add(-40 * time.Hour),
		time.Unix(0, 0), time.Unix(-1, 0), time.Date(2028, 2, 29, 23, 59, 59, 999e6, time.FixedZone("", 7200)),
	} {
		if got, want := string(d.appendDate(nil, at)), at.UTC().Format(http.TimeFormat); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// FuzzRequests checks our parser against that of net/http. net/http must accept each request that
// our parser accepts, and find the same parts and the same end. It may accept other requests, too.
func FuzzRequests(f *testing.F) {
	line := "GET " + drivingPath + "?vid=CarJam HTTP/1.1\r\n"
	for _, seed := range append(hostile("cst_secret"),
		line+"Host: x\r\n\r\n"+line+"Host: x\r\n\r\n",
		"\r\n\r\n"+line+"Host: x\r\n\r\n",
		line+"Host: x\r\nA:\tb \r\nConnection: close\r\n\r\n",
		"GET http://x/y HTTP/1.0\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		line+"Host: x\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+line+"Host: x\r\n\r\n",
		line+"Host: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		line+"Host: x\r\nContent-Length: 0;\r\n\r\n",
		line+"Host: x\r\nContent-Length: \t0\t\r\nTransfer\x00-Encoding: chunked\r\n\r\n",
		"\xef\xbb\xbf"+line+"Host: x\r\n\r\n",
		"GET http://me@x/y?vid=A HTTP/1.0\r\nHost: \r\n\r\n"+line,
		"GET 1:2 HTTP/1.1\r\nHost: :80\r\nConnection: ,close,\r\n\r\n",
	) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours := skipEmptyLines(b)
		n, _ := headEnd(ours, 0)
		if n == 0 || n > maxHead {
			return
		}
		var r request
		if r.split(ours[:n]) != nil {
			return
		}
		h := scanHead(r.headers)
		if framingFailure(&r, &h) != nil {
			return
		}
		in := bufio.NewReader(bytes.NewReader(ours))
		theirs, err := http.ReadRequest(in)
		if err != nil {
			// net/http checks more of targets and hosts than we need.
			if strings.Contains(err.Error(), "parse ") || strings.Contains(err.Error(), "malformed Host") {
				return
			}
			t.Fatalf("%q: net/http refuses it: %v", ours[:n], err)
		}
		if theirs.Method != string(r.method) || theirs.RequestURI != string(r.target) ||
			theirs.Proto != string(r.version) {
			t.Errorf("%q: %q %q %q, net/http %q %q %q", ours[:n],
				r.method, r.target, r.version, theirs.Method, theirs.RequestURI, theirs.Proto)
		}
		if theirs.ContentLength != 0 || len(theirs.TransferEncoding) > 0 {
			t.Errorf("%q: net/http sees a body", ours[:n])
		}
		rest, _ := io.ReadAll(in)
		if want := ours[n:]; !bytes.Equal(rest, want) {
			t.Errorf("%q: %d bytes are left, for net/http %d", ours[:n], len(want), len(rest))
		}
	})
}

// TestQueryAllocatesNothing checks that a query makes no allocation between the complete head and
// the bytes of the answer, with access log and rate limit.
func TestQueryAllocatesNothing(t *testing.T) {
	f := newFixture(t)
	f.AccessLog = openLogFor(t, AccessLogConfig{Out: io.Discard})
	defer f.AccessLog.Close()
	s := New(f.Config)
	v := &conversation{s: s, c: new(listen.Conn)}
	e := new(exchange)
	head := []byte(f.queryAs("HUNDRED_A_SECOND"))
	ask := func() {
		e.out = e.out[:0]
		if !v.respond(head, e) || !bytes.HasPrefix(e.out, []byte("HTTP/1.1 ")) {
			t.Fatalf("got %s", e.out)
		}
	}
	if n := testing.AllocsPerRun(1000, ask); n != 0 {
		t.Errorf("%v allocations a query", n)
	}
}
