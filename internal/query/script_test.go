package query_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/query"
	"example.org/carstate/internal/test/testkit"
)

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	testkit.NoError(t, err)
	ran := 0
	for _, file := range files {
		if filepath.Base(file) == "README.txt" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			f := newFixture(t)
			s := readScript(t, file)
			r := s.start(t, f)
			for _, c := range s.cases {
				ran++
				t.Run(c.title, func(t *testing.T) { c.run(t, r, f) })
			}
		})
	}
	if ran < 100 {
		t.Errorf("the cases: got %d, want 100 or more", ran)
	}
}

func (s *script) start(t *testing.T, f *fixture) *running {
	t.Helper()
	switch s.server {
	case "":
	case "no docs":
		f.NoDocs = true
	case "not ready":
		f.Ready = func(time.Time) error { return errors.New("secret internals") }
	default:
		t.Fatalf("the server: got %q, want one of those that are known", s.server)
	}
	return start(t, f.Config)
}

type script struct {
	server string
	cases  []*scriptCase
}

type scriptCase struct {
	where   string
	title   string
	request string
	answers []*scriptAnswer
	closed  bool
}

type scriptAnswer struct {
	status  string
	headers []string
	body    string
	inBody  bool
}

func readScript(t *testing.T, file string) (s script) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.NoError(t, err)
	var c *scriptCase
	var a *scriptAnswer
	for i, line := range strings.Split(string(text), "\n") {
		where := fmt.Sprintf("%s:%d", file, i+1)
		mark, rest, _ := strings.Cut(line, " ")
		if c == nil && slices.Contains([]string{">", ">>", ">lf", "<", "--", "closed"}, mark) {
			t.Fatalf("%s: got %s, want a case to begin before it", where, mark)
		}
		switch mark {
		case "", "#":
		case "server:":
			s.server = rest
		case "==":
			c, a = &scriptCase{where: where, title: rest}, nil
			s.cases = append(s.cases, c)
		case ">":
			c.request += rest + "\r\n"
		case ">lf":
			c.request += rest + "\n"
		case ">>":
			c.request += rest
		case "closed":
			c.closed = true
		case "--":
			a = nil
		case "<":
			switch {
			case a == nil:
				a = &scriptAnswer{status: rest}
				c.answers = append(c.answers, a)
			case rest == "":
				a.inBody = true
			case a.inBody:
				a.body += rest
			default:
				a.headers = append(a.headers, rest)
			}
		default:
			t.Fatalf("%s: got %q, want ==, >, >>, >lf, <, --, closed, server: or # at its begin", where, line)
		}
	}
	return s
}

var placeholder = regexp.MustCompile(`\{\{([^}]*)\}\}`)

func (f *fixture) fill(t *testing.T, s string) string {
	t.Helper()
	return placeholder.ReplaceAllStringFunc(s, func(m string) string {
		name := m[2 : len(m)-2]
		if secret, ok := f.secrets[name]; ok {
			return secret
		}
		if path, ok := strings.CutPrefix(name, "document "); ok {
			return document(t, f.Config, path)
		}
		if path, ok := strings.CutPrefix(name, "gzipped "); ok {
			return gzipped(t, f.Config, path)
		}
		if hex, ok := strings.CutPrefix(name, "byte "); ok {
			if n, err := strconv.ParseUint(hex, 16, 8); err == nil {
				return string([]byte{byte(n)})
			}
		}
		if times, what, ok := strings.Cut(name, " times "); ok {
			if n, err := strconv.Atoi(times); err == nil {
				return strings.Repeat(what, n)
			}
		}
		t.Fatalf("the placeholder: got %s, want one of those that are known", m)
		return ""
	})
}

func gzipped(t *testing.T, c query.Config, path string) string {
	t.Helper()
	packed := document(t, c, path, "Accept-Encoding: gzip")
	r, err := gzip.NewReader(strings.NewReader(packed))
	testkit.NoError(t, err)
	if text, err := io.ReadAll(r); err != nil || string(text) != document(t, c, path) {
		t.Errorf("%s, compressed: got other bytes, error %v; want the same", path, err)
	}
	return packed
}

func (c *scriptCase) run(t *testing.T, r *running, f *fixture) {
	conn := r.dial(t)
	request := f.fill(t, c.request)
	go io.WriteString(conn, request) // the answer may come before all is sent
	heads := strings.HasPrefix(request, "HEAD ")
	for i, want := range c.answers {
		got := readAnswer(t, conn.in, heads && i == 0)
		want.check(t, c.where, f, got, heads && i == 0)
		for name, secret := range f.secrets {
			if strings.Contains(got.raw, secret) {
				t.Errorf("%s: got %s in the answer, want it not repeated", c.where, name)
			}
		}
	}
	if c.closed {
		conn.wantsEnd()
		return
	}
	// The connection is open, and the server has read exactly up to the end of the request.
	conn.ask("GET /probe HTTP/1.1\r\nHost: x\r\n\r\n").wants(t, "404 Not Found")
}

type answerRead struct {
	raw    string
	status string
	header []string
	body   string
}

// readAnswer is strict: CR LF, no folded headers, exact spelling of names.
func readAnswer(t testing.TB, in *bufio.Reader, head bool) (a answerRead) {
	t.Helper()
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: got %v, want a line", a.raw+line, err)
		}
		a.raw += line
		line, ok := strings.CutSuffix(line, "\r\n")
		if !ok {
			t.Fatalf("a line of the answer: got %q, want CR LF at its end", line)
		}
		if line == "" {
			break
		}
		if first {
			a.status = line
			continue
		}
		a.header = append(a.header, line)
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, err = strconv.Atoi(v)
			testkit.NoError(t, err)
		}
	}
	if length < 0 {
		t.Fatalf("the answer: got no Content-Length, want one: %q", a.raw)
	}
	if head {
		return a
	}
	body := make([]byte, length)
	_, err := io.ReadFull(in, body)
	testkit.NoError(t, err)
	a.body = string(body)
	a.raw += a.body
	return a
}

// A case may give another value for such a header.
var everywhere = []string{
	"Date: " + noon.Format(http.TimeFormat),
	"Content-Type: application/json",
	"Cache-Control: private, no-store",
}

func (want *scriptAnswer) check(t *testing.T, where string, f *fixture, got answerRead, head bool) {
	t.Helper()
	if w := "HTTP/1.1 " + want.status; got.status != w {
		t.Errorf("%s: status\n got %s\nwant %s", where, got.status, w)
	}
	body := f.fill(t, want.body)
	if w := body; !head && got.body != w {
		t.Errorf("%s: body\n got %s\nwant %s", where, got.body, w)
	}
	usual := slices.DeleteFunc(slices.Clone(everywhere), func(h string) bool {
		name, _, _ := strings.Cut(h, " ")
		return slices.ContainsFunc(want.headers, func(w string) bool { return strings.HasPrefix(w, name) })
	})
	wanted := slices.Concat(usual, want.headers, []string{"Content-Length: " + strconv.Itoa(len(body))})
	rest := slices.DeleteFunc(slices.Clone(got.header), func(h string) bool {
		return strings.HasPrefix(h, "X-Request-Id: ")
	})
	if len(rest) != len(got.header)-1 {
		t.Errorf("%s: got %q, want one X-Request-Id", where, got.header)
	}
	slices.Sort(wanted)
	slices.Sort(rest)
	if !slices.Equal(rest, wanted) {
		t.Errorf("%s: headers\n got %q\nwant %q", where, rest, wanted)
	}
}
