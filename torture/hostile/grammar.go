package hostile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// writer makes requests, good ones and such as somebody hostile would send. All
// that is random comes from its seed.
type writer struct {
	*rand.Rand
	tokens  []*token // those that a caller may send
	strange []string // what is no token
	cars    []string
	serial  int
	name    string // letters and digits that no other writer has
}

// request is a request in parts, so that each can be spoilt.
type request struct {
	method, target, version string
	headers                 []string
	body                    string
}

func (r *request) bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\n", r.method, r.target, r.version)
	for _, h := range r.headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + r.body)
	return b.Bytes()
}

func pick[T any](w *writer, list ...T) T { return list[w.IntN(len(list))] }

// chance reports true once in n times.
func (w *writer) chance(n int) bool { return w.IntN(n) == 0 }

// nobody is a vehicle that does not exist and was never asked for before.
func (w *writer) nobody() string {
	w.serial++
	return "N" + w.name + "x" + strconv.Itoa(w.serial)
}

// text is n letters.
func (w *writer) text(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + w.IntN(26))
	}
	return string(b)
}

func (w *writer) secret() string {
	if w.chance(12) {
		return pick(w, w.strange...)
	}
	t := pick(w, w.tokens...)
	if t.calls > 0 && !w.chance(12) { // it is soon used up
		t = w.tokens[0]
	}
	return t.secret
}

func (w *writer) vehicle() string {
	if w.chance(3) {
		return w.nobody()
	}
	return pick(w, w.cars...)
}

// sound is a request that nothing is wrong with but, at times, its token.
func (w *writer) sound() *request {
	r := &request{method: "GET", version: "HTTP/1.1", headers: []string{"Host: " + pick(w, "localhost", "127.0.0.1:8080", "[::1]", "cars.example")}}
	if w.chance(6) {
		r.method = "HEAD"
	}
	if w.chance(12) {
		r.version = "HTTP/1.0"
	}
	params := []string{"access_token=" + w.encoded(w.secret()), "vid=" + w.encoded(w.vehicle())}
	if w.chance(4) {
		params = append(params, pick(w, "x=1", "x", "=", "", "lang=%C3%A4", "callback=%00", "u=http://a/?b", "VID=A", w.text(3)+"="+w.text(9)))
	}
	w.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
	path := pick(w, drivingPath, drivingPath, throttlePath)
	r.target = path + "?" + strings.Join(params, "&")
	if w.chance(20) {
		r.target = pick(w, "http://localhost", "HTTPS://cars.example:444") + r.target
	}
	if w.chance(60) {
		r.target = pick(w, "/", "/openapi.json", "/reference/")
	}
	for w.chance(3) {
		r.headers = append(r.headers, pick(w, "Accept: */*", "User-Agent: curl/8", "Content-Length: 0", "Connection: keep-alive", "X-Forwarded-For: 10.1.2.3, 4.5.6.7",
			"If-None-Match: *", "Range: bytes=0-3", "Accept-Encoding: gzip", "Upgrade: h2c", "X-Odd: \t \xff\xfe ", "Authorization: Basic eDp5", "X-Request-Id: mine", "Cookie: a=b",
			"Content_Length: 5", "X-Original-URL: /metrics", "Te: trailers", "Trailer: x", "Connection: close", "Origin: https://example.com"))
	}
	if n := count(r.headers, "content-length"); n > 1 {
		r.headers = r.headers[:1]
	}
	return r
}

func count(headers []string, name string) (n int) {
	for _, h := range headers {
		if before, _, _ := strings.Cut(h, ":"); strings.EqualFold(before, name) {
			n++
		}
	}
	return n
}

// encoded percent-encodes some of the text, or none of it.
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

// spoil changes one thing of a request, by the grammar.
func (w *writer) spoil(r *request) {
	switch w.IntN(12) {
	case 0:
		r.method = pick(w, "POST", "get", "OPTIONS", "TRACE", "CONNECT", "PUT", "Head", "GE T", "", "G\x00T", "PRI", w.text(1+w.IntN(40)))
	case 1:
		r.version = pick(w, "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "", "HTTP/11", "HTTP/1.1x", "ICY/1.0")
	case 2:
		w.spoilQuery(r)
	case 3:
		w.spoilPath(r)
	case 4:
		w.spoilHost(r)
	case 5:
		w.spoilLength(r)
	case 6:
		r.headers = append(r.headers, pick(w, "Expect: 100-continue", "expect:", "X : y", " X: y", "\tX: y", ": y", "X", "X(Y): z", "X: a\x00b", "X: a\rb", "X: a\x7fb", "X: a\nY: b",
			"", "\r", "Header\xc3\xa4: x", "X: y\r", "Host: other", "X: "+w.text(w.IntN(3000))))
		w.Shuffle(len(r.headers), func(i, j int) { r.headers[i], r.headers[j] = r.headers[j], r.headers[i] })
	case 7:
		w.pad(r)
	case 8:
		r.target = pick(w, "*", "localhost:80", "nothing", "", "http://", "http:///", "http://localhost", "ftp://localhost/", "http://me@localhost"+drivingPath, "mailto:x", "//", "/ /", "?vid=A",
			"http://localhost?vid=A", "javascript:1", "1:2", "/"+w.text(20))
	case 9:
		r.headers = append(r.headers, "Connection: "+pick(w, "close", "CLOSE", "keep-alive, close", "Close, x", "upgrade", "closed", ",close,", "keep-alive"))
	case 10:
		r.target = strings.Replace(r.target, "access_token=", pick(w, "access_token=Bearer+", "access_token=", "token=", "Access_Token=", "access_token=cst_", "access_token=%00", "access_token="+w.text(200)), 1)
	case 11:
		r.body = pick(w, "x", "\r\n", "\n", "\r", "\x00", "\r\n\r\n", "hello "+w.text(30), "0\r\n\r\n")
	}
}

func (w *writer) spoilQuery(r *request) {
	path, query, _ := strings.Cut(r.target, "?")
	params := strings.Split(query, "&")
	switch w.IntN(6) {
	case 0:
		params = append(params, pick(w, params...))
	case 1:
		i := w.IntN(len(params))
		params = append(params[:i:i], params[i+1:]...)
	case 2:
		params = append(params, pick(w, "%", "%2", "%zz=1", "x=100%", "%C1%B6id=A", "v%69d=B", "access%5ftoken=x", "vid", "vid=", "&&"))
	case 3:
		for i := range params {
			if strings.HasPrefix(params[i], "vid=") {
				params[i] += pick(w, "%20", "+", "-", "%00", "%0d%0aSet-Cookie:x", "%C3%84", "\xc3\x84", "#top", ";x=1", "%2543", "\"", "<script>", "_", "%EF%BC%A1", "../..", "'--", strings.Repeat("V", w.IntN(5000)))
			}
		}
	case 4:
		w.Shuffle(len(params), func(i, j int) { params[i], params[j] = params[j], params[i] })
		query = strings.Join(params, pick(w, ";", "&&", "?", "&amp;", ","))
		r.target = path + "?" + query
		return
	case 5:
		params = append(params, pick(w, "vid=Car", "access_token=", "access_token=x", "vid=%zz"))
		params[0], params[len(params)-1] = params[len(params)-1], params[0]
	}
	r.target = path + "?" + strings.Join(params, "&")
}

func (w *writer) spoilPath(r *request) {
	path, query, _ := strings.Cut(r.target, "?")
	path = pick(w, path+"/", "/"+path, path+"%00", strings.ToUpper(path), path+";v=1", path+"#x", "/api/../"+path, "/%61"+strings.TrimPrefix(path, "/a"), strings.Replace(path, "/", "//", 2),
		strings.ReplaceAll(path, "/", "\\"), path+"%zz", path+".json", "/metrics", "/debug/pprof/", "/healthz", "/v1/telemetry", "/reference", "/assets/../openapi.json", path[:len(path)/2], "/"+w.text(9))
	r.target = path + "?" + query
}

func (w *writer) spoilHost(r *request) {
	for i, h := range r.headers {
		if strings.HasPrefix(h, "Host:") {
			r.headers[i] = "Host:" + pick(w, "", " ", " a b", " me@localhost", " localhost/x", " localhost\xe9", " a,b", " [::1", " :80", " a:b:c", "\tlocalhost\t", " localhost:99999999", " "+w.text(300))
		}
	}
	switch w.IntN(4) {
	case 0:
		r.headers = append(r.headers, pick(w, "Host: localhost", "host: other", "HOST:"))
	case 1:
		r.headers = r.headers[min(1, len(r.headers)):]
	}
}

func (w *writer) spoilLength(r *request) {
	r.headers = append(r.headers, "Content-Length:"+pick(w, " 5", " 0, 0", " 00", " +0", " -0", " -1", " 0x0", "", " 1e0", " 0 0", " 99999999999999999999", " 18446744073709551616", " \t0\t", " 0;", " 0\x0b", "0", " 1"))
	if w.chance(3) {
		r.headers = append(r.headers, pick(w, "Content-Length: 0", "content-length:0", "Content-Length: 7"))
	}
	if w.chance(2) {
		r.body = w.text(w.IntN(12))
	}
}

// pad brings the line or the head to a size near one that decides something.
func (w *writer) pad(r *request) {
	size := pick(w, 4096, maxLine, maxLine, maxHead, maxHead, maxHead, maxHead+1024, 20000, 40000) + w.IntN(5) - 2
	if w.chance(2) {
		if n := size - len(r.method) - len(r.target) - len(r.version) - 2; n > 3 {
			r.target += "&x=" + strings.Repeat("a", n-3)
		}
		return
	}
	if n := size - len(r.bytes()) + len(r.body) - len("X: \r\n"); n > 0 {
		r.headers = append(r.headers, "X: "+strings.Repeat("a", n))
	}
}
