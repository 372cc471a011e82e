package drivelog

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// limits are the maximum sizes of a file and its parts.
type limits struct {
	unpacked int64 // bytes of the whole file
	line     int   // bytes of one row
	rows     int
}

// bounds are the limits that Read applies: 1 GiB for the unpacked file, 1 MiB for a row, and
// 2,000,000 rows. They are far above any real drive: 2,000,000 rows are two days at 10 rows per
// second.
var bounds = limits{unpacked: 1 << 30, line: 1 << 20, rows: 2_000_000}

// lines reads a file line by line, without the line ends. If the file is damaged, the last line
// before the damage is left out: it may be cut off anywhere, and a number that is cut off is a
// wrong number.
type lines struct {
	scan    *bufio.Scanner
	next    string
	more    bool
	damaged bool
	err     error
	max     limits
}

// openLines returns the lines of r. It unpacks gzip, which it recognizes by its first two bytes,
// and skips a byte order mark. It returns an error if the gzip header is damaged or if the first
// line cannot be read.
func openLines(r io.Reader, max limits) (*lines, error) {
	in := bufio.NewReader(r)
	l := &lines{max: max}
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("the gzip file is damaged from its first bytes on; fetch it again: %w", err)
		}
		in = bufio.NewReader(&bounded{z, max.unpacked})
	} else {
		in = bufio.NewReader(&bounded{in, max.unpacked})
	}
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		in.Discard(3)
	}
	l.scan = bufio.NewScanner(in)
	l.scan.Buffer(nil, max.line)
	l.fetch()
	return l, l.err
}

// Next returns the next line, and true. At the end of the file, and after an error, ok is false,
// and the returned line must not be used. The error is in the field l.err; at the end of the file,
// l.err is nil.
func (l *lines) Next() (line string, ok bool) {
	if !l.more {
		return "", false
	}
	line = l.next
	l.fetch()
	return line, l.err == nil && (l.more || !l.damaged)
}

func (l *lines) fetch() {
	if l.more = l.scan.Scan(); l.more {
		l.next = l.scan.Text()
		return
	}
	var corrupt flate.CorruptInputError
	switch err := l.scan.Err(); {
	case err == nil:
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader),
		errors.As(err, &corrupt):
		l.damaged = true
	case errors.Is(err, bufio.ErrTooLong):
		l.err = fmt.Errorf("a row is longer than %d bytes; not a drive log", l.max.line)
	default:
		l.err = err
	}
}

// bounded is a reader that fails once more than left bytes have been read from it.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

var errTooLarge = errors.New("the unpacked file is larger than a drive log may be (1 GiB); split it")
