package query

import (
	"bytes"
	"cmp"
	"unicode"

	"example.org/carstate/internal/vehicle"
)

// params are form-decoded. token is set if the query has exactly one, encoded correctly, even if
// the query is refused.
type params struct {
	vid, token       []byte
	hasVid, hasToken bool
}

// parseQuery parses application/x-www-form-urlencoded, and allocates only if *scratch, to which it
// appends decoded text, is too small. It continues after a failure, because the rate-limit headers
// depend on the token.
func parseQuery(raw []byte, scratch *[]byte) (p params, first *failure) {
	if !validEscapes(raw) {
		first = failEncoding
	}
	for len(raw) > 0 {
		var pair []byte
		pair, raw, _ = bytes.Cut(raw, []byte("&"))
		name, value, _ := bytes.Cut(pair, []byte("="))
		if first == failEncoding && !validEscapes(name) {
			continue
		}
		switch string(decode(name, scratch)) {
		case "vid":
			switch {
			case p.hasVid:
				first = cmp.Or(first, failures["vid_twice"])
			case first == nil:
				p.vid = decode(value, scratch)
			}
			p.hasVid = true
		case "access_token":
			switch {
			case p.hasToken:
				first, p.token = cmp.Or(first, failures["token_twice"]), nil
			case first != failEncoding || validEscapes(value):
				p.token = decode(value, scratch)
			}
			p.hasToken = true
		}
	}
	return p, first
}

func validEscapes(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '%')
		if i < 0 {
			return true
		}
		if len(b) < i+3 || unhex(b[i+1]) < 0 || unhex(b[i+2]) < 0 {
			return false
		}
		b = b[i+3:]
	}
}

// decode returns encoded itself, or a new part of *scratch. Every '%' must begin a valid escape.
func decode(encoded []byte, scratch *[]byte) []byte {
	if bytes.IndexByte(encoded, '%') < 0 && bytes.IndexByte(encoded, '+') < 0 {
		return encoded
	}
	start := len(*scratch)
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			c = byte(unhex(encoded[i+1])<<4 | unhex(encoded[i+2]))
			i += 2
		}
		*scratch = append(*scratch, c)
	}
	return (*scratch)[start:]
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func checkVid(p *params) *failure {
	switch {
	case !p.hasVid:
		return failures["vid_missing"]
	case len(p.vid) == 0:
		return failures["vid_empty"]
	case vehicle.CheckID(p.vid) == nil:
		return nil
	case bytes.ContainsAny(p.vid, " \t\r\n"):
		return failures["vid_white_space"]
	case bytes.IndexByte([]byte("<{["), p.vid[0]) >= 0:
		return failures["vid_placeholder"]
	case bytes.IndexFunc(p.vid, func(r rune) bool { return r > unicode.MaxASCII }) >= 0:
		return failures["vid_not_ascii"]
	case bytes.IndexByte(p.vid, '-') >= 0:
		return failures["vid_dash"]
	}
	return failures["vid_form"]
}
