package http1

import (
	"bytes"
	"net/netip"
)

// The sizes, in bytes, of the buffer into which a request head is read. The buffer begins with
// smallBuffer, which is enough for nearly every head, and grows to readBuffer for a longer one.
// readBuffer exceeds MaxHead, the longest head that is accepted. So a head that is only a little
// too long is still parsed, and the answer says exactly which limit it exceeds.
const (
	smallBuffer = 4 << 10
	readBuffer  = MaxHead + 1<<10
)

// Limits of a request, in bytes. The size of the request line excludes its line end. The size of
// the head includes everything from the request line to the empty line.
const (
	MaxLine = 8 << 10
	MaxHead = 16 << 10
)

// Fault says why a request is refused. The connection ends with the answer.
type Fault string

// The faults of a request.
const (
	None       Fault = ""
	NotHTTP    Fault = "not_http"
	LineEnd    Fault = "line_end"
	Folded     Fault = "header_folded"
	HeaderName Fault = "header_name"
	Host       Fault = "host"
	Body       Fault = "body"
	Expect     Fault = "expect"
	Version    Fault = "version"
	LineSize   Fault = "line_size"
	HeadSize   Fault = "head_size"
	Slow       Fault = "slow" // the head did not arrive in time
)

// The faults that the client has not caused.
const (
	Busy    Fault = "busy"    // the connection was accepted during an overload
	Crowded Fault = "crowded" // there are too many connections
	Broken  Fault = "broken"  // the handler has panicked
)

// Request is a parsed request head. Its slices are parts of the connection's buffer, so they must
// not be changed.
type Request struct {
	Method  []byte
	Target  []byte     // the request target as sent
	Version []byte     // such as HTTP/1.1
	Headers []byte     // the header block as sent, with the empty line
	Peer    netip.Addr // the other end of the connection

	Authorization bool // there is an Authorization header
	Gzip          bool // the client accepts a body in gzip

	hosts     int  // number of Host headers
	length    bool // there is a Content-Length
	closes    bool // the client sent Connection: close
	keepAlive bool // the client sent Connection: keep-alive, as HTTP/1.0 requires
}

// IsRead reports whether the method is GET or HEAD.
func (r *Request) IsRead() bool { return string(r.Method) == "GET" || r.isHead() }

func (r *Request) isHead() bool { return string(r.Method) == "HEAD" }

func (r *Request) isHTTP10() bool { return string(r.Version) == "HTTP/1.0" }

// Path returns the path and the query of the target, which has origin form (/path?query) or absolute
// form (http://host/path?query). It neither decodes nor cleans them. If there is no query, it is
// nil. If the target has another form, path is empty.
func (r *Request) Path() (path, query []byte) {
	path = r.Target
	if len(path) > 0 && path[0] != '/' {
		path = afterAuthority(path)
	}
	return Cut(path, '?')
}

// afterAuthority returns what follows the host of an http or https URL, and otherwise nil.
func afterAuthority(target []byte) []byte {
	i := bytes.Index(target, []byte("://"))
	if i < 0 || !equalFold(target[:i], "http") && !equalFold(target[:i], "https") {
		return nil
	}
	rest := target[i+len("://"):]
	if i = bytes.IndexAny(rest, "/?#"); i <= 0 {
		return nil
	}
	return rest[i:]
}

// headEnd finds the end of the request head at the start of b. The search starts at the index from,
// which is 0 in the first call for a head.
//
// If b has the whole head, end is the number of bytes of the head, and next is 0. If the end of the
// head has not arrived, end is 0, and next is the index at which the search must continue: when
// more bytes have arrived, the caller passes next as from.
//
// A head ends with an empty line. headEnd also accepts a line end without CR, although such a head
// is refused later. Otherwise the server would wait for more input before it refuses the head.
func headEnd(b []byte, from int) (end, next int) {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0, from
		}
		after := from + i + 1
		switch rest := b[after:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return after + 1, 0
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return after + 2, 0
		case len(rest) == 0 || len(rest) == 1 && rest[0] == '\r':
			return 0, from
		}
		from = after
	}
}

// skipEmptyLines returns b without the empty lines that may precede a request (RFC 9112, 2.2).
func skipEmptyLines(b []byte) []byte {
	for len(b) > 1 && b[0] == '\r' && b[1] == '\n' {
		b = b[2:]
	}
	return b
}

// Parse parses a complete head. The facts of r that a fault leaves open are not set.
func (r *Request) Parse(head []byte) Fault {
	*r = Request{Peer: r.Peer}
	i := bytes.IndexByte(head, '\n')
	if i < 1 || head[i-1] != '\r' {
		return NotHTTP
	}
	line := head[:i-1]
	r.Headers = head[i+1:]
	var rest []byte
	r.Method, rest = Cut(line, ' ')
	r.Target, r.Version = Cut(rest, ' ')
	if len(r.Method) == 0 || !consistsOf(r.Method, &tokenBytes) || !isTarget(r.Target) || !isVersion(r.Version) {
		return NotHTTP
	}
	fault := r.scanHeaders()
	isV11 := string(r.Version) == "HTTP/1.1"
	switch {
	case fault != None:
		return fault
	case !isV11 && !r.isHTTP10():
		return Version
	case r.hosts > 1 || isV11 && r.hosts == 0:
		return Host
	case len(line) > MaxLine:
		return LineSize
	case len(head) > MaxHead:
		return HeadSize
	}
	return None
}

// isTarget reports whether b has one of the forms of a request target (RFC 9112,
// 3.2), without blanks and control characters.
func isTarget(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	if len(b) == 0 || b[0] == '/' || string(b) == "*" {
		return len(b) > 0
	}
	i := bytes.IndexAny(b, ":/?#")
	return i > 0 && b[i] == ':' // after a scheme, or between a host and its port
}

func isVersion(b []byte) bool {
	return len(b) == len("HTTP/1.1") && string(b[:5]) == "HTTP/" && b[6] == '.' &&
		'0' <= b[5] && b[5] <= '9' && '0' <= b[7] && b[7] <= '9'
}
