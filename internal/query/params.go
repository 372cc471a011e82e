package query

import (
	"bytes"
	"cmp"
	"encoding/hex"
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
	valid := true
	for len(raw) > 0 {
		var pair []byte
		pair, raw, _ = bytes.Cut(raw, []byte("&"))
		name, value, _ := bytes.Cut(pair, []byte("="))
		name, validName := decode(name, scratch)
		value, validValue := decode(value, scratch)
		valid = valid && validName && validValue
		switch string(name) {
		case "vid":
			switch {
			case p.hasVid:
				first = cmp.Or(first, failures["vid_twice"])
			case first == nil:
				p.vid = value
			}
			p.hasVid = true
		case "access_token":
			p.token = value
			if p.hasToken {
				first, p.token = cmp.Or(first, failures["token_twice"]), nil
			}
			p.hasToken = true
		}
	}
	if !valid {
		p.vid, first = nil, failEncoding
	}
	return p, first
}

// decode returns encoded itself, a new part of *scratch, or nil if a '%' does not begin an escape.
func decode(encoded []byte, scratch *[]byte) (decoded []byte, valid bool) {
	if bytes.IndexByte(encoded, '%') < 0 && bytes.IndexByte(encoded, '+') < 0 {
		return encoded, true
	}
	start := len(*scratch)
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			var escaped [1]byte
			if n, _ := hex.Decode(escaped[:], encoded[i+1:min(i+3, len(encoded))]); n == 0 {
				return nil, false
			}
			c = escaped[0]
			i += 2
		}
		*scratch = append(*scratch, c)
	}
	return (*scratch)[start:], true
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
