package fcd

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/vehicle"
)

const (
	// Without maxRow, a quote that is never closed would make the rest of the file one cell.
	maxRow      = 64 << 10
	maxVehicles = 100_000 // also the limit of carstate simulate
	maxSeconds  = 5e9     // in 2128, as Unix time
	checkEvery  = 4096    // rows until ctx is checked
)

type table struct {
	name  string
	rows  *csv.Reader
	bound *bounded
	at    []int // column indexes; -1: absent
	cells []string
	line  int
	known map[string]vehicle.ID // so that each name is checked and stored once
}

func rows[T any](ctx context.Context, r io.Reader, name string, columns []string, needed int,
	parse func(*table) (T, error)) iter.Seq2[T, error] {
	return func(yield func(row T, err error) bool) {
		var row T
		t, err := openTable(r, name, columns, needed)
		for n := 1; err == nil; n++ {
			if n%checkEvery == 0 && ctx.Err() != nil {
				err = ctx.Err()
			} else if err = t.next(); err == nil {
				row, err = parse(t)
			}
			if err == nil && !yield(row, nil) {
				return
			}
		}
		if err != io.EOF {
			yield(row, err)
		}
	}
}

// openTable needs the first needed columns to exist.
func openTable(r io.Reader, name string, columns []string, needed int) (*table, error) {
	t := &table{name: name, line: 1, known: make(map[string]vehicle.ID)}
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, t.unreadable(err)
		}
		in = bufio.NewReader(z)
	}
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		in.Discard(3)
	}
	t.bound = &bounded{r: in}
	t.rows = csv.NewReader(t.bound)
	t.rows.ReuseRecord = true
	switch err := t.next(); {
	case err == io.EOF:
		return nil, t.complain("the file is empty; it must begin with the names of its columns")
	case err != nil:
		return nil, err
	}
	header := make([]string, len(t.cells))
	for i, cell := range t.cells {
		header[i] = strings.ToLower(strings.TrimSpace(cell))
	}
	for i, column := range columns {
		at := slices.Index(header, column)
		if at < 0 && i < needed {
			return nil, t.complain("there is no column %s; the columns must be named %s, separated by commas", column,
				strings.Join(columns[:needed], ", "))
		}
		if at >= 0 && slices.Contains(header[at+1:], column) {
			return nil, t.complain("two columns are named %s", column)
		}
		t.at = append(t.at, at)
	}
	return t, nil
}

func (t *table) next() (err error) {
	t.bound.left = maxRow
	if t.cells, err = t.rows.Read(); err == io.EOF {
		return err
	}
	if err != nil {
		return t.unreadable(err)
	}
	t.line, _ = t.rows.FieldPos(0)
	return nil
}

func (t *table) unreadable(err error) error {
	if p, ok := errors.AsType[*csv.ParseError](err); ok {
		t.line, err = p.Line, p.Err
	} else {
		t.line++
	}
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		return t.complain("the row has more or fewer cells than the header")
	case errors.Is(err, errRowTooLong), errors.Is(err, csv.ErrQuote), errors.Is(err, csv.ErrBareQuote):
		return t.complain("%w", err)
	}
	return t.complain("the file ends early or is damaged; fetch it again: %w", err)
}

func (t *table) complain(format string, args ...any) error {
	return fmt.Errorf("%s, line %d: %w", t.name, t.line, fmt.Errorf(format, args...))
}

// cell returns "" if the file lacks the column.
func (t *table) cell(column int) string {
	if t.at[column] < 0 {
		return ""
	}
	return strings.TrimSpace(t.cells[t.at[column]])
}

func (t *table) vehicle(column int) (vehicle.ID, error) {
	text := t.cell(column)
	if id, ok := t.known[text]; ok {
		return id, nil
	}
	id, err := vehicle.ParseReportingID(strings.Clone(text)) // so that the row is not kept in memory
	switch {
	case err != nil:
		return "", t.complain("%w", err)
	case len(t.known) == maxVehicles:
		return "", t.complain("there are more than %d vehicles; split the file", maxVehicles)
	}
	t.known[string(id)] = id
	return id, nil
}

func (t *table) time(column int) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(t.cell(column), 64)
	if err != nil || !(seconds >= 0 && seconds <= maxSeconds) {
		return 0, t.complain("the time must be a number of seconds from 0 to %.0f, such as 12.5", maxSeconds)
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond), nil
}

type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errRowTooLong
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

var errRowTooLong = fmt.Errorf("the row is longer than %d bytes; look for a quote that is not closed", maxRow)
