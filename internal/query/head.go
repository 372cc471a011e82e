package query

import "bytes"

// head holds the facts in a request's header block on which the answer depends.
type head struct {
	fault         *failure // the failure of an invalid header block; nil if it is valid
	hosts         int      // number of Host headers
	length        bool     // there is a Content-Length
	authorization bool     // there is an Authorization header
	closes        bool     // the client sent Connection: close
	keepAlive     bool     // the client sent Connection: keep-alive, as HTTP/1.0 requires
	gzip          bool     // the client accepts a body in gzip
}

// scanHead parses a header block as sent, from the first header to the empty line. If it finds an
// error, it sets fault in h and parses no further. It is strict and does not rely on another
// parser: if a proxy and this server disagreed on the end of a request, a client could smuggle one
// request inside another.
func scanHead(raw []byte) (h head) {
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || raw[end-1] != '\r' {
			h.fault = failBareLine
			return h
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			h.fault = failFolded
			return h
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || !consistsOf(line[:colon], &tokenBytes) {
			h.fault = failHeaderName
			return h
		}
		if i := controlIn(line[colon:]); i >= 0 {
			h.fault = failMalformed
			if line[colon+i] == '\r' {
				h.fault = failBareLine
			}
			return h
		}
		if h.addHeader(line[:colon], trimSpace(line[colon+1:])); h.fault != nil {
			return h
		}
	}
	return h
}

// controlIn returns the index of the first control character other than a tab, or -1.
func controlIn(line []byte) int {
	for i, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return i
		}
	}
	return -1
}

func (h *head) addHeader(name, value []byte) {
	switch len(name) {
	case len("Host"):
		if equalFold(name, "host") {
			h.hosts++
			// The characters alone are checked, because no answer depends on the host (RFC 9110, 7.2).
			if len(value) == 0 || !consistsOf(value, &hostBytes) {
				h.fault = failHost
			}
		}
	case len("Expect"):
		if equalFold(name, "expect") {
			h.fault = failExpect
		}
	case len("Connection"):
		if equalFold(name, "connection") {
			h.closes = h.closes || hasOption(value, "close")
			h.keepAlive = h.keepAlive || hasOption(value, "keep-alive")
		}
	case len("Authorization"):
		if equalFold(name, "authorization") {
			h.authorization = true
		}
	case len("Content-Length"):
		if equalFold(name, "content-length") {
			h.addLength(value)
		}
	case len("Accept-Encoding"):
		if equalFold(name, "accept-encoding") {
			h.gzip = h.gzip || acceptsGzip(value)
		}
	case len("Transfer-Encoding"):
		if equalFold(name, "transfer-encoding") {
			h.fault = failBody
		}
	}
}

// addLength records a Content-Length header. If it is the second such header, or its value is not
// 0, addLength sets h.fault, because a request must have no body. The value must be a decimal
// number of at most 19 digits, the length of the largest int64.
func (h *head) addLength(value []byte) {
	switch {
	case h.length || len(value) == 0 || len(value) > 19 || len(bytes.Trim(value, "0123456789")) > 0:
		h.fault = failMalformed
	case string(value) != "0":
		h.fault = failBody
	}
	h.length = true
}

// hasOption reports whether a comma-separated list has option (in lower case), ignoring case.
func hasOption(list []byte, option string) bool {
	for len(list) > 0 {
		var item []byte
		if item, list = cut(list, ','); equalFold(trimSpace(item), option) {
			return true
		}
	}
	return false
}

// acceptsGzip reports whether an Accept-Encoding header names gzip with a weight other than zero.
// It ignores "*", because a client that sends "*" also accepts an uncompressed body.
func acceptsGzip(list []byte) bool {
	for len(list) > 0 {
		var item []byte
		item, list = cut(list, ',')
		coding, weight := cut(item, ';')
		if equalFold(trimSpace(coding), "gzip") {
			w := trimSpace(weight)
			return len(w) < 2 || w[0]|0x20 != 'q' || w[1] != '=' || len(bytes.Trim(w[2:], "0.")) > 0
		}
	}
	return false
}

// cut returns the parts of b before and after the first sep. If there is none, these are b and nil.
func cut(b []byte, sep byte) (before, after []byte) {
	if i := bytes.IndexByte(b, sep); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// equalFold reports whether b equals the text lower, ignoring the case of ASCII letters. lower must
// be in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trimSpace removes the optional white space of HTTP, blanks and tabs, from both ends.
func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

func consistsOf(b []byte, set *[256]bool) bool {
	for _, c := range b {
		if !set[c] {
			return false
		}
	}
	return true
}

const lettersAndDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// The bytes of a token of RFC 9110, such as a header's name, and of a host with or without a port.
var (
	tokenBytes = bytesOf("!#$%&'*+-.^_`|~" + lettersAndDigits)
	hostBytes  = bytesOf("-._~%!$&'()*+,;=:[]" + lettersAndDigits)
)

func bytesOf(s string) (t [256]bool) {
	for _, c := range s {
		t[c] = true
	}
	return t
}
