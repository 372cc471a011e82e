package hostile

import (
	"bytes"
	"embed"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.org/carstate/bench/must"
	"example.org/carstate/torture/row"
)

//go:embed attacks.txt nginx.conf haproxy.conf
var files embed.FS

type list struct {
	name  string
	texts []string
}

// attacks holds the lists of attacks.txt: a name follows "# ", and {5:x} is a text five times.
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

func lists(kind string) (some []list) {
	for _, l := range attacks {
		if name, ok := strings.CutPrefix(l.name, kind); ok {
			some = append(some, list{name, l.texts})
		}
	}
	return some
}

// writer generates requests, which follow from its seed.
type writer struct {
	*rand.Rand
	tokens  []*token // tokens that a caller may send
	strange []string // texts that are no tokens
	cars    []string
	serial  int
	name    string // letters and digits, unique among writers
}

func (w *writer) from(name string) string {
	return pick(w, attacks[slices.IndexFunc(attacks, func(l list) bool { return l.name == name })].texts...)
}

func pick[T any](w *writer, list ...T) T { return list[w.IntN(len(list))] }

func (w *writer) chance(n int) bool { return w.IntN(n) == 0 }

// nobody returns the id of a vehicle that was never queried before.
func (w *writer) nobody() string {
	w.serial++
	return "N" + w.name + "x" + strconv.Itoa(w.serial)
}

// sound returns a correct request, whose token may be unknown.
func (w *writer) sound() string {
	secret, vid := pick(w, w.tokens...).secret, pick(w, w.cars...)
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

// spoilers replace a part of a request, which matches the pattern in their names. @@ is that part.
var spoilers = lists("spoil ")

// spoil changes one part of a request, or makes its line or head about as long as a limit allows.
func (w *writer) spoil(request string) string {
	if w.chance(10) {
		n := pick(w, 4096, maxLine, maxLine, maxHead, maxHead, maxHead, maxHead+1024, 20000, 40000) + w.IntN(5) - 2
		if line, rest, _ := strings.Cut(request, " HTTP/"); w.chance(2) {
			return line + "&x=" + long(max(0, n-len(line)-len("&x= HTTP/1.1"))) + " HTTP/" + rest
		}
		return strings.TrimSuffix(request, "\r\n") + "X: " + long(max(0, n-len(request)-len("X: \r\n"))) + "\r\n\r\n"
	}
	s := pick(w, spoilers...)
	at := regexp.MustCompile(s.name).FindStringIndex(request)
	if at == nil {
		return request
	}
	return request[:at[0]] + strings.ReplaceAll(pick(w, s.texts...), "@@", request[at[0]:at[1]]) + request[at[1]:]
}

// mutate changes b at one to four random places. It may reuse the memory of b.
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

// smuggle returns a request with another one hidden in it: some bytes are the body of the first
// request to one parser, and the second request to another.
func (w *writer) smuggle() string {
	hidden := question(drivingPath, w.tokens[0], "S"+w.nobody())
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	chunks := "0\r\n\r\n"
	if w.chance(3) {
		chunks = fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(hidden),
			pick(w, "", ";x=y", "; a=\"\r\n\"", ";"+long(50), " ", "\n"), hidden)
	}
	encoding := w.from("encodings") + "\r\n"
	both := chunks + hidden
	way := pick(w, [][2]string{
		{length(len(hidden)), hidden},                       // the body is a request
		{length(len(chunks)) + encoding, both},              // CL.TE
		{encoding + length(pick(w, 0, 4, len(both))), both}, // TE.CL
		{encoding + "Transfer-Encoding: x\r\n", both},       // TE.TE
		{encoding + "Transfer-encoding:\r\n", both},         //
		{encoding, both}, // TE alone
		{length(0) + length(len(hidden)), hidden},                  // two lengths
		{length(len(hidden)) + length(0), hidden},                  //
		{"Expect: 100-continue\r\n" + length(len(hidden)), hidden}, // the client should wait for 100
		{"Content-Length: " + pick(w, "+5", "-0", "0x5", " 0 ,", "0,", "5 5", "0a", "0.0", "") + "\r\n", hidden},
		{"X: " + pick(w, "\n", "\r", "\r\n\n", "\n\r\n", "\n\n", "\x00\r\n\r\n") + hidden, ""}, // after a header
	}...)
	outer := pick(w, "GET", "GET", "HEAD", "POST") + " " + drivingPath + "?vid=" + pick(w, w.cars...) + "&access_token=" +
		w.tokens[0].secret + pick(w, " HTTP/1.1", " HTTP/1.1", " HTTP/1.0")
	return outer + "\r\nHost: localhost\r\n" + way[0] + "\r\n" + way[1]
}

type conversation struct {
	stream   []byte
	requests int
	sound    map[int]bool // offsets of requests that were not changed
}

// The last request of a conversation is correct: its answer shows whether both sides still agree on
// where a request begins.
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
	v.stream = append(v.stream, question(throttlePath, w.tokens[0], "Z"+w.nobody())...)
	return v
}

func question(path string, t *token, vid string) string {
	return "GET " + path + "?access_token=" + t.secret + "&vid=" + vid + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
}

func long(n int) string { return strings.Repeat("x", n) }
