package http1

import (
	"bytes"
	"net/netip"
)

// The read buffer begins small, which suffices for nearly every head. The large one exceeds
// MaxHead, so that the answer to a head that is a little too long names the limit.
const (
	smallBuffer = 4 << 10
	readBuffer  = MaxHead + 1<<10
)

// In bytes: the request line without its line end, and all up to the empty line.
const (
	MaxLine = 8 << 10
	MaxHead = 16 << 10
)

// Fault says why a request is refused. The connection ends with the answer.
type Fault string

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
	Slow       Fault = "slow"
)

// The client has not caused these.
const (
	Busy    Fault = "busy"    // accepted during an overload
	Crowded Fault = "crowded" // too many connections
	Broken  Fault = "broken"  // the handler has panicked
)

// Request is a parsed head, in the connection's buffer, which must not be changed.
type Request struct {
	Method  []byte
	Target  []byte
	Version []byte
	Headers []byte // as sent, with the empty line
	Peer    netip.Addr

	Authorization bool // has the header
	Gzip          bool // accepts it

	hosts     int
	length    bool // has the header
	closes    bool
	keepAlive bool // said so, as HTTP/1.0 requires
}

func (r *Request) IsRead() bool { return string(r.Method) == "GET" || r.isHead() }

func (r *Request) isHead() bool { return string(r.Method) == "HEAD" }

func (r *Request) isHTTP10() bool { return string(r.Version) == "HTTP/1.0" }

// Path returns the parts of a target in origin form (/path?query) or absolute form
// (http://host/path?query), neither decoded nor cleaned; path is empty for another form.
func (r *Request) Path() (path, query []byte) {
	path = r.Target
	if len(path) > 0 && path[0] != '/' {
		path = afterAuthority(path)
	}
	return Cut(path, '?')
}

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

// headEnd finds the end of the head at the start of b. If it has not arrived, end is 0, and next is
// the from of the next call.
//
// A line end without CR also ends a head, so that the server need not wait before it refuses that
// head.
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

// skipEmptyLines: empty lines may precede a request (RFC 9112, 2.2).
func skipEmptyLines(b []byte) []byte {
	for len(b) > 1 && b[0] == '\r' && b[1] == '\n' {
		b = b[2:]
	}
	return b
}

// Parse leaves the facts behind a fault unset.
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

// isTarget follows RFC 9112, 3.2.
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
	return i > 0 && b[i] == ':' // after a scheme, or before a port
}

func isVersion(b []byte) bool {
	return len(b) == len("HTTP/1.1") && string(b[:5]) == "HTTP/" && b[6] == '.' &&
		'0' <= b[5] && b[5] <= '9' && '0' <= b[7] && b[7] <= '9'
}
