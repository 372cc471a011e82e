package http1

import (
	"bytes"
	"net/netip"
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

// Faults that the client has not caused.
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
	length    bool // has Content-Length
	closes    bool
	keepAlive bool // said so, as HTTP/1.0 requires
}

func (r *Request) IsRead() bool { return string(r.Method) == "GET" || string(r.Method) == "HEAD" }

func (r *Request) isHTTP10() bool { return string(r.Version) == "HTTP/1.0" }

// Path returns the parts of a target in origin form (/path?query) or absolute form
// (http://host/path?query), neither decoded nor cleaned; path is empty for another form.
func (r *Request) Path() (path, query []byte) {
	path = r.Target
	if len(path) > 0 && path[0] != '/' {
		path = afterAuthority(path)
	}
	path, query, _ = bytes.Cut(path, []byte("?"))
	return path, query
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

// Parse stops at a fault, and leaves later fields unset.
func (r *Request) Parse(head []byte) Fault {
	*r = Request{Peer: r.Peer}
	i := bytes.IndexByte(head, '\n')
	if i < 1 || head[i-1] != '\r' {
		return NotHTTP
	}
	line := head[:i-1]
	r.Headers = head[i+1:]
	var rest []byte
	r.Method, rest, _ = bytes.Cut(line, []byte(" "))
	r.Target, r.Version, _ = bytes.Cut(rest, []byte(" "))
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
