package query

import (
	"bytes"
	"net/netip"
)

// The sizes, in bytes, of the buffer into which a request head is read. The buffer begins with
// smallBuffer, which is enough for nearly every head, and grows to readBuffer for a longer one.
// readBuffer exceeds maxHead, the longest head that is accepted. So a head that is only a little
// too long is still parsed, and the answer says exactly which limit it exceeds.
const (
	smallBuffer = 4 << 10
	readBuffer  = maxHead + 1<<10
)

// Limits of a request, in bytes. The size of the request line excludes its line end. The size of
// the head includes everything from the request line to the empty line.
const (
	maxLine = 8 << 10
	maxHead = 16 << 10
)

// request is a parsed request head. Its slices are parts of the connection's buffer, so they must
// not be changed.
type request struct {
	method  []byte
	target  []byte     // the request target as sent
	version []byte     // such as HTTP/1.1
	headers []byte     // the header block as sent, with the empty line
	peer    netip.Addr // the other end of the connection
}

func isRead(method []byte) bool {
	return string(method) == "GET" || string(method) == "HEAD"
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

// split divides a complete head into the header block and the three parts of the request line. If
// that line is malformed, it returns a failure. The answerer checks everything else.
func (r *request) split(head []byte) *failure {
	i := bytes.IndexByte(head, '\n')
	if i < 1 || head[i-1] != '\r' {
		return failMalformed
	}
	line := head[:i-1]
	r.headers = head[i+1:]
	var rest []byte
	r.method, rest = cut(line, ' ')
	r.target, r.version = cut(rest, ' ')
	if len(r.method) == 0 || !consistsOf(r.method, &tokenBytes) || !isTarget(r.target) || !isVersion(r.version) {
		return failMalformed
	}
	return nil
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
