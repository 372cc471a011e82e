package query

import (
	"bytes"
	"cmp"
	"unicode"

	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/vehicle"
)

// params holds the two parameters of an operation, vid and access_token, form-decoded. hasVid and
// hasToken say whether a parameter is present; a parameter that was sent without a value is present
// and empty. If the query contains exactly one access_token, and its value is correctly
// percent-encoded, token is set even if the query is refused for another reason. Otherwise token is
// empty.
type params struct {
	vid, token       []byte
	hasVid, hasToken bool
}

// parseQuery parses a query string as application/x-www-form-urlencoded, which has pairs separated
// by '&', '+' for a blank, and percent-encoding in names and values. It ignores unknown parameters.
// Decoded names and values are appended to *scratch. When *scratch is large enough, nothing is
// allocated. A value that needs no decoding is returned as a part of raw.
//
// first is the first failure found, or nil. The rest of the query is parsed even after a failure,
// because the rate-limit headers of the answer depend on the token in the query.
func parseQuery(raw []byte, scratch *[]byte) (p params, first *failure) {
	if !validEscapes(raw) {
		first = failEncoding
	}
	for len(raw) > 0 {
		var pair []byte
		pair, raw = http1.Cut(raw, '&')
		name, value := http1.Cut(pair, '=')
		if first == failEncoding && !validEscapes(name) {
			continue
		}
		switch string(decode(name, scratch)) {
		case "vid":
			switch {
			case p.hasVid:
				first = cmp.Or(first, failTwoVids)
			case first == nil:
				p.vid = decode(value, scratch)
			}
			p.hasVid = true
		case "access_token":
			switch {
			case p.hasToken:
				first, p.token = cmp.Or(first, failTwoTokens), nil
			case first != failEncoding || validEscapes(value):
				p.token = decode(value, scratch)
			}
			p.hasToken = true
		}
	}
	return p, first
}

// validEscapes reports whether every '%' begins a percent-encoded byte.
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

// decode returns a parameter's name or value in decoded form: encoded itself if it has neither '%'
// nor '+', and otherwise a new part of *scratch. Every '%' must begin a percent-encoded byte.
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

// unhex returns the value of a hexadecimal digit, or -1 if c is not one.
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

// checkVid returns the failure of a missing or malformed parameter vid, or nil.
func checkVid(p *params) *failure {
	switch {
	case !p.hasVid:
		return failNoVid
	case len(p.vid) == 0:
		return failEmptyVid
	case vehicle.CheckID(p.vid) == nil:
		return nil
	case bytes.ContainsAny(p.vid, " \t\r\n"):
		return failVidSpace
	case bytes.IndexByte([]byte("<{["), p.vid[0]) >= 0:
		return failVidShape
	case bytes.IndexFunc(p.vid, func(r rune) bool { return r > unicode.MaxASCII }) >= 0:
		return failVidASCII
	case bytes.IndexByte(p.vid, '-') >= 0:
		return failVidDash
	}
	return failVid
}
