package hostile

import (
	"bytes"
	"regexp"
	"strings"
)

// head is a request's head as RFC 9112 has it, read as strictly as the contract
// asks: one that could be understood in two ways is faulty.
type head struct {
	whole    bool // its end is there
	size     int  // bytes, to its end or to that of the stream
	line     int  // bytes of the request line
	readable bool // the request line is one
	faulty   bool // 400
	doubtful bool // may be taken for faulty, or not

	method, target, version string

	hosts, lengths    int
	closes, keepAlive bool
}

// readHead reads the head that the stream begins with.
func readHead(stream []byte) *head {
	h := &head{size: len(stream)}
	// A head ends with an empty line; where lines end in LF alone it is faulty,
	// but ends too.
	for at := 0; ; {
		n := bytes.IndexByte(stream[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
		if rest := stream[at:]; bytes.HasPrefix(rest, []byte("\n")) {
			h.whole, h.size = true, at+1
			break
		} else if bytes.HasPrefix(rest, []byte("\r\n")) {
			h.whole, h.size = true, at+2
			break
		}
	}
	text := string(stream[:h.size])
	lines := strings.Split(text, "\r\n")
	h.line = len(lines[0])
	h.requestLine(lines[0])
	if !h.whole {
		h.readable = h.readable && len(lines) > 1
		return h
	}
	if !strings.HasSuffix(text, "\r\n\r\n") || len(lines) < 3 {
		h.faulty = true
		return h
	}
	for _, line := range lines[1 : len(lines)-2] {
		h.field(line)
	}
	if h.version == "HTTP/1.1" && h.hosts != 1 || h.hosts > 1 || h.version != "HTTP/1.1" && h.version != "HTTP/1.0" {
		h.faulty = true
	}
	return h
}

var (
	requestLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^\x00-\x20\x7f]+) (HTTP/[0-9]\\.[0-9])$")
	fieldLine   = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)$")
	hostBytes   = regexp.MustCompile(`^[-._~%!$&'()*+,;=:\[\]0-9A-Za-z]+$`)
	plainHost   = regexp.MustCompile(`^(?:[-._~0-9A-Za-z]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?$`)
	absolute    = regexp.MustCompile(`^(?i:https?)://([^/?#]*)(.*)$`)
	someURI     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)
	authority   = regexp.MustCompile(`^[-._~0-9A-Za-z]+:[0-9]+$`)
)

func (h *head) requestLine(line string) {
	m := requestLine.FindStringSubmatch(line)
	if m == nil {
		h.faulty = true
		return
	}
	h.readable = true
	h.method, h.target, h.version = m[1], m[2], m[3]
	switch t := h.target; {
	case t[0] == '/', t == "*", authority.MatchString(t):
	case absolute.MatchString(t):
		h.doubtful = strings.Contains(absolute.FindStringSubmatch(t)[1], "@")
	case someURI.MatchString(t), strings.Contains(t, ":"):
		h.doubtful = true // a form that no request to us has
	default:
		h.faulty = true
	}
}

// path takes path and query out of the target, as sent.
func (h *head) path() (path, query string) {
	path = h.target
	if path[0] != '/' {
		m := absolute.FindStringSubmatch(path)
		if m == nil || m[1] == "" {
			return "", ""
		}
		path = m[2]
	}
	path, query, _ = strings.Cut(path, "?")
	return path, query
}

// field reads one header line.
func (h *head) field(line string) {
	m := fieldLine.FindStringSubmatch(line)
	if m == nil {
		h.faulty = true
		return
	}
	value := strings.Trim(m[2], " \t")
	switch strings.ToLower(m[1]) {
	case "host":
		h.hosts++
		switch {
		case value == "" && h.version == "HTTP/1.0":
			h.doubtful = true
		case !hostBytes.MatchString(value):
			h.faulty = true
		case !plainHost.MatchString(value):
			h.doubtful = true
		}
	case "transfer-encoding", "expect":
		h.faulty = true
	case "content-length":
		if h.lengths++; h.lengths > 1 || value != "0" {
			h.faulty = true
		}
	case "connection":
		for option := range strings.SplitSeq(strings.ToLower(value), ",") {
			option = strings.Trim(option, " \t")
			h.closes = h.closes || option == "close"
			h.keepAlive = h.keepAlive || option == "keep-alive"
		}
	}
}
