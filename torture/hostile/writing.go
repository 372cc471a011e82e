package hostile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// writer generates requests, both good and hostile ones. All random choices follow from its
// seed.
type writer struct {
	*rand.Rand
	tokens  []*token // tokens that a caller may send
	strange []string // texts that are no tokens
	cars    []string
	serial  int
	name    string // letters and digits, unique among writers
}

func pick[T any](w *writer, list ...T) T { return list[w.IntN(len(list))] }

// chance returns true with probability 1/n.
func (w *writer) chance(n int) bool { return w.IntN(n) == 0 }

// nobody returns a vehicle that does not exist and was never queried before.
func (w *writer) nobody() string {
	w.serial++
	return "N" + w.name + "x" + strconv.Itoa(w.serial)
}

// headers are the headers that a request may have besides Host, each at most once.
var headers = []string{
	"Accept: */*", "User-Agent: curl/8", "Content-Length: 0", "Connection: keep-alive",
	"X-Forwarded-For: 10.1.2.3, 4.5.6.7", "If-None-Match: *", "Range: bytes=0-3",
	"Accept-Encoding: gzip", "Upgrade: h2c", "X-Odd: \t \xff\xfe ", "Authorization: Basic eDp5", "X-Request-Id: mine",
	"Cookie: a=b", "Content_Length: 5",
	"X-Original-URL: /metrics", "Te: trailers", "Trailer: x", "Connection: close", "Origin: https://example.com",
}

// sound returns a correct request. Its token may be unknown.
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
		params = append(params, pick(w, "x=1", "x", "=", "", "lang=%C3%A4", "callback=%00", "u=http://a/?b", "VID=A"))
	}
	w.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
	target := pick(w, drivingPath, drivingPath, throttlePath) + "?" + strings.Join(params, "&")
	if w.chance(20) {
		target = pick(w, "http://localhost", "HTTPS://cars.example:444") + target
	} else if w.chance(60) {
		target = pick(w, "/", "/openapi.json", "/reference/")
	}
	head := pick(w, "GET", "GET", "GET", "GET", "GET", "HEAD") + " " + target +
		pick(w, " HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.1", " HTTP/1.0")
	lines := []string{"Host: " + pick(w, "localhost", "127.0.0.1:8080", "[::1]", "cars.example")}
	for w.chance(3) {
		if h := pick(w, headers...); !slices.Contains(lines, h) {
			lines = append(lines, h)
		}
	}
	return head + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// encoded percent-encodes some characters of the text, or none.
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

// spoilers change a part of a request. In their replacements, @@ is replaced by the original part.
var spoilers = []struct {
	part *regexp.Regexp
	with []string
}{
	{regexp.MustCompile(`^[A-Z]+`), []string{"POST", "get", "OPTIONS", "TRACE", "CONNECT", "PUT", "Head", "GE T", "",
		"G\x00T", "PRI", "\x16\x03\x01", long(40)}},
	{regexp.MustCompile(` HTTP/1\.[01]`), []string{" HTTP/1.2", " HTTP/2.0", " HTTP/0.9", " http/1.1", "@@ ", "", " ",
		" HTTP/11", "@@x", " ICY/1.0"}},
	{regexp.MustCompile(`vid=[^& ]*`), []string{"", "@@&@@", "@@&vid=Car", "v%69d=B&@@", "vid", "vid=", "VID=A", "@@%20",
		"@@+", "@@-", "@@%00", "@@%0d%0aSet-Cookie:x", "@@%C3%84", "@@\xc3\x84", "@@#top",
		"@@;x=1", "@@%2543", "@@\"", "@@<script>", "@@_", "@@%EF%BC%A1", "@@../..", "@@'--", "@@" + long(250), "@@" +
			long(4000), "@@&%", "@@&%2", "@@&%zz=1", "@@&x=100%", "@@&%C1%B6id=A", "@@&&&"}},
	{regexp.MustCompile(`access_token=[^& ]*`), []string{"", "@@&@@", "access_token=", "access_token=x",
		"access_token=Bearer+x", "token=x", "Access_Token=x", "access_token=%00", "access_token=" + long(200),
		"@@&access_token=", "access%5ftoken=x", "access%5ftoken=x&@@", "access_token=%zz"}},
	{regexp.MustCompile(`[?&]`), []string{";", "&&", "?", "??", "&amp;", ",", "%3F"}},
	{regexp.MustCompile(` (/[^? ]*)`), []string{"@@/", " /", "@@%00", "@@;v=1", "@@#x", " /api/..", " //api", "@@%zz",
		"@@.json", " /metrics", " /debug/pprof/", " /healthz", " /v1/telemetry", " /reference",
		" /assets/../openapi.json", " \\api", " /%61pi", " /API", " /nothing", " /no\"thing", " /" + long(20)}},
	{regexp.MustCompile(` [^ ]+ `), []string{" * ", " localhost:80 ", " nothing ", "  ", " http:// ", " http:/// ",
		" http://localhost ", " ftp://localhost/ ", " http://me@localhost" + drivingPath + " ", " mailto:x ",
		" // ", " / / ", " ?vid=A ", " http://localhost?vid=A ", " javascript:1 ", " 1:2 "}},
	{regexp.MustCompile(`Host: [^\r]*\r\n`), []string{"", "@@@@", "@@host: other\r\n", "HOST:\r\n", "Host: \r\n",
		"Host: a b\r\n", "Host: me@localhost\r\n", "Host: localhost/x\r\n", "Host: localhost\xe9\r\n", "Host: a,b\r\n",
		"Host: [::1\r\n", "Host: :80\r\n", "Host: a:b:c\r\n", "Host:\tlocalhost\t\r\n", "Host: localhost:99999999\r\n",
		"Host: " + long(300) + "\r\n"}},
	{regexp.MustCompile(`\r\n\r\n$`), []string{"\r\nExpect: 100-continue@@", "\r\nexpect:@@", "\r\nX : y@@", "\r\n X: y@@",
		"\r\n\tX: y@@", "\r\n: y@@", "\r\nX@@", "\r\nX(Y): z@@", "\r\nX: a\x00b@@", "\r\nX: a\rb@@",
		"\r\nX: a\x7fb@@", "\r\nX: a\nY: b@@", "\r\n\r@@", "\r\nHeader\xc3\xa4: x@@", "\r\nX: y\r@@", "\r\nX: " + long(3000) +
			"@@", "@@x", "@@\n", "@@\r", "@@\x00", "@@hello", "@@0\r\n\r\n", "\n\n", "\n\r\n", "\r\n"}},
	{regexp.MustCompile(`\r\n\r\n$`), []string{"\r\nConnection: CLOSE@@", "\r\nConnection: keep-alive, close@@",
		"\r\nConnection: Close, x@@", "\r\nConnection: closed@@", "\r\nConnection: ,close,@@",
		"\r\nConnection: keep-alive@@"}},
	{regexp.MustCompile(`\r\n\r\n$`), []string{"\r\nContent-Length: 5@@hello", "\r\nContent-Length: 5@@",
		"\r\nContent-Length: 0, 0@@", "\r\nContent-Length: 00@@", "\r\nContent-Length: +0@@", "\r\nContent-Length: -0@@",
		"\r\nContent-Length: -1@@", "\r\nContent-Length: 0x0@@", "\r\nContent-Length:@@", "\r\nContent-Length: 1e0@@",
		"\r\nContent-Length: 0 0@@", "\r\nContent-Length: 99999999999999999999@@",
		"\r\nContent-Length: \t0\t@@", "\r\nContent-Length: 0;@@", "\r\nContent-Length: 0\x0b@@", "\r\nContent-Length:0@@",
		"\r\nContent-Length: 1@@", "\r\nContent-Length: 0\r\ncontent-length:0@@"}},
}

// spoil changes one part of a request (see spoilers), or makes its request line or its head about
// as long as a limit allows.
func (w *writer) spoil(request string) string {
	if w.chance(10) {
		n := pick(w, 4096, maxLine, maxLine, maxHead, maxHead, maxHead, maxHead+1024, 20000, 40000) + w.IntN(5) - 2
		if line, rest, _ := strings.Cut(request, " HTTP/"); w.chance(2) {
			return line + "&x=" + long(max(0, n-len(line)-len("&x= HTTP/1.1"))) + " HTTP/" + rest
		}
		return strings.TrimSuffix(request, "\r\n") + "X: " + long(max(0, n-len(request)-len("X: \r\n"))) + "\r\n\r\n"
	}
	s := pick(w, spoilers...)
	at := s.part.FindStringIndex(request)
	if at == nil {
		return request
	}
	return request[:at[0]] + strings.ReplaceAll(pick(w, s.with...), "@@", request[at[0]:at[1]]) + request[at[1]:]
}

// mutate changes random bytes.
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
			b = slices.Insert(b, i, pick(w, byte(0), '\r', '\n', ' ', '\t', '%', '&', ':', ';', '=', '?', '#', 0x7f, 0x80, 0xff,
				'"'))
		case 2:
			b = slices.Delete(b, i, j)
		case 3:
			b = slices.Insert(b, j, slices.Clone(b[i:j])...)
		case 4:
			b = b[:i]
		case 5:
			b = bytes.Replace(b, []byte("\r\n"), pick(w, []byte("\n"), []byte("\r"), []byte("\n\r"), []byte("\r\r\n"),
				[]byte("\r\n ")), 1+w.IntN(2))
		case 6:
			copy(b[i:j], pick(w, bytes.ToUpper, bytes.ToLower)(b[i:j]))
		case 7:
			b = slices.Insert(b, i,
				[]byte(pick(w, "\r\n", "\r\n\r\n", "HTTP/1.1", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "GET ",
					"\xef\xbb\xbf", "\u2028"))...)
		}
	}
	return b
}

// smuggle returns a request with another request hidden in it, by tricks that have deceived
// servers: one parser takes certain bytes for the body of the first request, and another parser
// takes them for the second request.
func (w *writer) smuggle() string {
	hidden := "GET " + drivingPath + "?access_token=" + w.tokens[0].secret + "&vid=S" + w.nobody() +
		" HTTP/1.1\r\nHost: localhost\r\n\r\n"
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	chunks := "0\r\n\r\n"
	if w.chance(3) {
		chunks = fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(hidden),
			pick(w, "", ";x=y", "; a=\"\r\n\"", ";"+long(50), " ", "\n"), hidden)
	}
	encoding := pick(w, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", "transfer-encoding:chunked",
		"Transfer-Encoding: xchunked", "Transfer-Encoding : chunked", "Transfer-Encoding:\tchunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: identity, chunked",
		"X: y\nTransfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked", "Transfer-Encoding: \x0bchunked",
		"Transfer-Encoding: chunked;q=1", "Transfer-Encoding: \"chunked\"", "TRANSFER-ENCODING: CHUNKED",
		"Transfer\x00-Encoding: chunked", " Transfer-Encoding: chunked", "Transfer-Encoding") + "\r\n"
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

// conversation is what is sent over one connection.
type conversation struct {
	stream   []byte
	requests int
	sound    map[int]bool // offsets of requests that were not changed
}

func (v *conversation) add(text string, sound bool) {
	if sound {
		v.sound[len(v.stream)] = true
	}
	v.stream = append(v.stream, text...)
}

// conversation generates a conversation. Its last request is correct. The answer to it shows
// whether the client and the server still agree on where a request begins.
func (w *writer) conversation() *conversation {
	v := &conversation{requests: 1 + w.IntN(12), sound: make(map[int]bool)}
	for range v.requests {
		switch k := w.IntN(20); {
		case k < 10:
			v.add(w.sound(), true)
		case k < 14:
			v.add(w.spoil(w.sound()), false)
		case k < 15:
			v.add(w.spoil(w.spoil(w.sound())), false)
		case k < 17:
			v.add(w.smuggle(), false)
		case k < 19:
			v.add(string(w.mutate([]byte(w.sound()))), false)
		default:
			v.add(string(w.mutate([]byte(w.spoil(w.sound())))), false)
		}
		if w.chance(15) {
			v.add(pick(w, "\r\n", "\r\n\r\n", "\n", "\x00", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
				"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /\r\n\r\n", "*1\r\n$4\r\nPING\r\n", "EHLO x\r\n"), false)
		}
	}
	v.add("GET "+throttlePath+"?vid=Z"+w.nobody()+"&access_token="+w.tokens[0].secret+
		" HTTP/1.1\r\nHost: localhost\r\n\r\n", true)
	v.requests++
	return v
}

// long returns a text that is too long for most fields.
func long(n int) string { return strings.Repeat("x", n) }
