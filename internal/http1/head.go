package http1

import (
	"bytes"
	"net/textproto"
)

// scanHeaders is strict: if a proxy and this server disagreed on the end of a request, a client
// could smuggle one inside another.
func (r *Request) scanHeaders() Fault {
	raw := r.Headers
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || raw[end-1] != '\r' {
			return LineEnd
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			return Folded
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || !consistsOf(line[:colon], &tokenBytes) {
			return HeaderName
		}
		if i := controlIn(line[colon:]); i >= 0 {
			if line[colon+i] == '\r' {
				return LineEnd
			}
			return NotHTTP
		}
		if f := r.addHeader(line[:colon], textproto.TrimBytes(line[colon+1:])); f != None {
			return f
		}
	}
	return None
}

// controlIn returns the index of the first control character but tab, or -1.
func controlIn(line []byte) int {
	for i, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return i
		}
	}
	return -1
}

func (r *Request) addHeader(name, value []byte) Fault {
	switch {
	case equalFold(name, "host"):
		r.hosts++
		// No answer depends on the host (RFC 9110, 7.2), so only its syntax is checked.
		if len(value) == 0 || !consistsOf(value, &hostBytes) {
			return Host
		}
	case equalFold(name, "expect"):
		return Expect
	case equalFold(name, "connection"):
		r.closes = r.closes || hasOption(value, "close")
		r.keepAlive = r.keepAlive || hasOption(value, "keep-alive")
	case equalFold(name, "authorization"):
		r.Authorization = true
	case equalFold(name, "content-length"):
		return r.addLength(value)
	case equalFold(name, "accept-encoding"):
		r.Gzip = r.Gzip || acceptsGzip(value)
	case equalFold(name, "transfer-encoding"):
		return Body
	}
	return None
}

// addLength allows one Content-Length of 0. Other numbers of up to 19 digits, as an int64 has,
// announce a body.
func (r *Request) addLength(value []byte) Fault {
	switch {
	case r.length || len(value) == 0 || len(value) > 19 || len(bytes.Trim(value, "0123456789")) > 0:
		return NotHTTP
	case string(value) != "0":
		return Body
	}
	r.length = true
	return None
}

func hasOption(list []byte, option string) bool {
	for item := range bytes.SplitSeq(list, []byte(",")) {
		if equalFold(textproto.TrimBytes(item), option) {
			return true
		}
	}
	return false
}

// acceptsGzip ignores "*", which also accepts an uncompressed body.
func acceptsGzip(list []byte) bool {
	for item := range bytes.SplitSeq(list, []byte(",")) {
		coding, weight, _ := bytes.Cut(item, []byte(";"))
		if equalFold(textproto.TrimBytes(coding), "gzip") {
			w := textproto.TrimBytes(weight)
			return len(w) < 2 || w[0]|0x20 != 'q' || w[1] != '=' || len(bytes.Trim(w[2:], "0.")) > 0
		}
	}
	return false
}

// equalFold compares ASCII: with a longer character, such as ſ for s, the lengths differ.
func equalFold(b []byte, word string) bool {
	return len(b) == len(word) && bytes.EqualFold(b, []byte(word))
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

// Bytes of a token of RFC 9110, such as a header's name, and of a host with or without port.
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
