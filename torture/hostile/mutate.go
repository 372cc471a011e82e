package hostile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// mutate changes bytes, whatever they mean.
func (w *writer) mutate(b []byte) []byte {
	for range 1 + w.IntN(4) {
		if len(b) == 0 {
			return b
		}
		i := w.IntN(len(b))
		j := min(len(b), i+w.IntN(40))
		switch w.IntN(11) {
		case 0:
			b[i] = byte(w.IntN(256))
		case 1:
			b = slices.Insert(b, i, pick(w, byte(0), '\r', '\n', ' ', '\t', '%', '&', ':', ';', '=', '?', '#', 0x7f, 0x80, 0xff, '"'))
		case 2:
			b = slices.Delete(b, i, j)
		case 3:
			b = slices.Insert(b, j, slices.Clone(b[i:j])...)
		case 4:
			b = b[:i]
		case 5:
			b = bytes.Replace(b, []byte("\r\n"), pick(w, []byte("\n"), []byte("\r"), []byte("\n\r"), []byte("\r\r\n"), []byte("\r\n ")), 1+w.IntN(2))
		case 6:
			lines := bytes.SplitAfter(b, []byte("\r\n"))
			x, y := w.IntN(len(lines)), w.IntN(len(lines))
			lines[x], lines[y] = lines[y], lines[x]
			b = bytes.Join(lines, nil)
		case 7:
			copy(b[i:j], bytes.ToUpper(b[i:j]))
		case 8:
			copy(b[i:j], bytes.ToLower(b[i:j]))
		case 9:
			b = slices.Insert(b, i, []byte(pick(w, "\r\n", "\r\n\r\n", "HTTP/1.1", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "GET ", "\xef\xbb\xbf", "\u2028"))...)
		case 10:
			other := w.sound().bytes()
			b = append(b[:i:i], other[w.IntN(len(other)):]...)
		}
	}
	return b
}

// smuggle is one request in which another one is hidden, in the ways that have
// fooled servers: what one reader takes for a body the other takes for a request.
func (w *writer) smuggle() []byte {
	inner := w.sound()
	inner.target = drivingPath + "?access_token=" + w.tokens[0].secret + "&vid=S" + w.nobody()
	hidden := string(inner.bytes())
	outer := w.sound()
	outer.method = pick(w, "GET", "GET", "HEAD", "POST")
	outer.version = pick(w, "HTTP/1.1", "HTTP/1.1", "HTTP/1.0")
	outer.headers = slices.DeleteFunc(outer.headers, func(h string) bool { return !strings.HasPrefix(h, "Host") })
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	chunks := "0\r\n\r\n"
	if w.chance(3) {
		chunks = fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(hidden), pick(w, "", ";x=y", "; a=\"\r\n\"", ";"+w.text(50), " ", "\n"), hidden)
	}
	encoding := pick(w, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", "transfer-encoding:chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding : chunked", "Transfer-Encoding:\tchunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: identity, chunked", "X: y\nTransfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked", "Transfer-Encoding: \x0bchunked",
		"Transfer-Encoding: chunked;q=1", "Transfer-Encoding: \"chunked\"", "TRANSFER-ENCODING: CHUNKED", "Transfer\x00-Encoding: chunked", " Transfer-Encoding: chunked", "Transfer-Encoding")
	switch w.IntN(9) {
	case 0: // the body is a request
		outer.headers = append(outer.headers, length(len(hidden)))
		outer.body = hidden
	case 1: // CL.TE
		outer.headers = append(outer.headers, length(len(chunks)), encoding)
		outer.body = chunks + hidden
	case 2: // TE.CL
		outer.headers = append(outer.headers, encoding, length(pick(w, 0, 4, len(chunks)+len(hidden))))
		outer.body = chunks + hidden
	case 3: // TE.TE
		outer.headers = append(outer.headers, encoding, pick(w, "Transfer-Encoding: x", "Transfer-Encoding:", "Transfer-encoding: cow"))
		outer.body = chunks + hidden
	case 4: // TE alone
		outer.headers = append(outer.headers, encoding)
		outer.body = chunks + hidden
	case 5: // two lengths
		outer.headers = append(outer.headers, length(0), length(len(hidden)))
		w.Shuffle(len(outer.headers), func(i, j int) { outer.headers[i], outer.headers[j] = outer.headers[j], outer.headers[i] })
		outer.body = hidden
	case 6: // a length that is none
		outer.headers = append(outer.headers, "Content-Length: "+pick(w, "+", "-", "0x", " 0 ", "0,", "")+pick(w, "0", "5", "")+pick(w, "", " ", "a", ".0"))
		outer.body = hidden
	case 7: // behind a header
		outer.headers = append(outer.headers, "X: "+pick(w, "\n", "\r", "\r\n\n", "\n\r\n", "\n\n", "\x00\r\n\r\n")+hidden)
	case 8: // to wait for
		outer.headers = append(outer.headers, "Expect: 100-continue", length(len(hidden)))
		outer.body = hidden
	}
	return outer.bytes()
}

// conversation is what is sent over one connection, and how many requests it was
// made of. A last good request tells whether both sides are still in step.
func (w *writer) conversation() (stream []byte, requests int) {
	for n := 1 + w.IntN(12); requests < n; requests++ {
		switch k := w.IntN(20); {
		case k < 10:
			stream = append(stream, w.sound().bytes()...)
		case k < 14:
			r := w.sound()
			w.spoil(r)
			stream = append(stream, r.bytes()...)
		case k < 15:
			r := w.sound()
			for range 1 + w.IntN(3) {
				w.spoil(r)
			}
			stream = append(stream, r.bytes()...)
		case k < 17:
			stream = append(stream, w.smuggle()...)
		case k < 19:
			stream = append(stream, w.mutate(w.sound().bytes())...)
		default:
			r := w.sound()
			w.spoil(r)
			stream = append(stream, w.mutate(r.bytes())...)
		}
		if w.chance(15) {
			stream = append(stream, pick(w, "\r\n", "\r\n\r\n", "\n", "\x00", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /\r\n\r\n", "*1\r\n$4\r\nPING\r\n", "EHLO x\r\n")...)
		}
	}
	last := &request{method: "GET", target: throttlePath + "?vid=Z" + w.nobody() + "&access_token=" + w.tokens[0].secret, version: "HTTP/1.1", headers: []string{"Host: localhost"}}
	return append(stream, last.bytes()...), requests + 1
}
