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

type limits struct {
	unpacked int64 // bytes
	line     int   // bytes
	rows     int
}

// 2,000,000 rows are two days at 10 rows per second, above any real drive.
var bounds = limits{unpacked: 1 << 30, line: 1 << 20, rows: 2_000_000}

func (m limits) tooManyRows() error { return fmt.Errorf("more than %d rows; split the file", m.rows) }

// lines leaves out the last line before damage: a number that is cut off is wrong.
type lines struct {
	in      *bufio.Reader
	scan    *bufio.Scanner
	max     limits
	damaged bool
	err     error
}

func openLines(r io.Reader, max limits) (*lines, error) {
	in := bufio.NewReader(r)
	unpacked := &bounded{in, max.unpacked}
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("the gzip file is damaged from its first bytes on; fetch it again: %w", err)
		}
		unpacked.r = z
	}
	in = bufio.NewReader(unpacked)
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		in.Discard(3)
	}
	l := &lines{in: in, scan: bufio.NewScanner(in), max: max}
	l.scan.Buffer(nil, max.line)
	return l, nil
}

func (l *lines) all(yield func(line string) bool) {
	line, more := "", l.scan.Scan()
	for more {
		line = l.scan.Text()
		if more = l.scan.Scan(); more && !yield(line) {
			return
		}
	}
	if err := l.scan.Err(); err == nil {
		yield(line)
	} else {
		l.fail(err)
	}
}

func (l *lines) fail(err error) {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader),
		errors.As(err, &corrupt):
		l.damaged = true
	case errors.Is(err, bufio.ErrTooLong):
		l.err = fmt.Errorf("a row is longer than %d bytes; not a drive log", l.max.line)
	default:
		l.err = err
	}
}

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
