package drivelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
)

type Drive struct {
	Format          string
	Start           time.Time // zero if the log has no absolute time
	Rows            []Row
	Lines           int
	RowsLeftOut     []Count
	ReadingsLeftOut []Count
	Mended          []Count
}

type Row struct {
	At time.Duration // since the file's first row
	// Readings may be empty in a row with a label.
	Readings signal.Readings
	Label    driving.State // of an observer; 0 if there is none
}

func (d *Drive) Duration() time.Duration {
	if len(d.Rows) == 0 {
		return 0
	}
	return d.Rows[len(d.Rows)-1].At
}

func (d *Drive) Notes() []string {
	var notes []string
	tell := func(counts []Count, one, many string) {
		for _, c := range counts {
			what := many
			if c.N == 1 {
				what = one
			}
			notes = append(notes, fmt.Sprintf("%d %s: %s", c.N, what, c.Reason))
		}
	}
	tell(d.RowsLeftOut, "row left out", "rows left out")
	tell(d.ReadingsLeftOut, "reading left out", "readings left out")
	tell(d.Mended, "thing put right", "things put right")
	return notes
}

// Warnings returns defects that may make figures about the drive wrong.
func (d *Drive) Warnings() []string {
	var warnings []string
	for _, c := range d.Mended {
		if c.Reason == damagedEnd {
			warnings = append(warnings, c.Reason)
		}
	}
	for _, c := range d.ReadingsLeftOut {
		if c.Reason == unknownLabel {
			warnings = append(warnings, fmt.Sprintf("%d of %d rows not compared: %s", c.N, d.Lines, c.Reason))
		}
	}
	return warnings
}

// Open recognizes the format if as is nil. A pipe may never send anything, so if ctx ends, Open
// returns, and the read continues in the background.
func Open(ctx context.Context, path string, as *format.Format) (*Drive, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var d *Drive
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, err = open(path, as)
	}()
	select {
	case <-done:
		return d, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func open(path string, as *format.Format) (*Drive, error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var d *Drive
		if d, err = Read(f, filepath.Base(path), as); err == nil {
			return d, nil
		}
	}
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return nil, fmt.Errorf("the drive %s cannot be read: %w", path, p.Err)
	}
	return nil, fmt.Errorf("the drive cannot be read: %w", err)
}

// Read fails only if nothing is usable. Of a damaged file, it returns the rows before the damage,
// with a warning. The name is for errors.
func Read(r io.Reader, name string, as *format.Format) (*Drive, error) {
	d, err := readWithin(r, bounds, as)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

func readWithin(r io.Reader, max limits, as *format.Format) (d *Drive, _ error) {
	var a account
	l, err := openLines(r, max)
	if err != nil {
		return nil, err
	}
	start, _ := l.in.Peek(64)
	switch start = bytes.TrimSpace(start); {
	case as == nil && bytes.HasPrefix(start, []byte("<")):
		d, err = readGPX(l, &a)
	case as == nil && bytes.IndexAny(start, "{[") == 0, as != nil && as.From == "json":
		d, err = readJSON(l, as, &a)
	case as != nil && as.From != "csv":
		err = errors.New("a format with from: csv or json is needed" + help)
	default:
		d, err = readRows(l, as, &a)
	}
	if err != nil {
		return nil, err
	}
	if len(d.Rows) == 0 {
		why, separator := "a "+d.Format+" log without a usable row", ": "
		for _, c := range a.rows {
			why += separator + c.Reason
			separator = "; "
		}
		return nil, errors.New(why)
	}
	d.RowsLeftOut, d.ReadingsLeftOut, d.Mended = a.rows, a.readings, a.mended
	return d, nil
}

func readRows(l *lines, as *format.Format, a *account) (*Drive, error) {
	t, err := readTable(l, as, a)
	if err != nil {
		return nil, err
	}
	at := t.format.clock(t, a)
	rows := assemble(t, at, t.format.read(t, at), a)
	return &Drive{Format: t.format.name, Start: t.start(), Rows: rows, Lines: t.lines}, nil
}

func assemble(t *table, at []time.Duration, reads []readSet, a *account) []Row {
	rows := make([]Row, 0, len(t.records))
	for i := range t.records {
		rec := &t.records[i]
		row := Row{At: at[i], Label: rec.label}
		half := false
		usable := false // a cell that the rules use was read, perhaps with an invalid value
		for c, col := range t.columns {
			if !reads[i].has(c) || !col.used {
				continue
			}
			usable = true
			if col.signal == signal.DTCList {
				_ = row.Readings.SetCodes(t.codes[rec.line]) // format limits their number
			} else if row.Readings.Set(col.signal, float64(rec.cells[c])) != nil {
				a.readings.add(impossible)
				half = half || col.signal.IsPosition()
			}
		}
		if half {
			row.Readings.DropPosition()
		}
		switch {
		case !row.Readings.Empty() || row.Label != 0:
			rows = append(rows, row)
		case usable:
			a.rows.add(noGoodCell)
		case reads[i] != 0:
			a.rows.add(otherSensor)
		case !slices.ContainsFunc(rec.cells, func(v float32) bool { return !isNaN(v) }):
			a.rows.add(noCell)
		default:
			a.rows.add(nothingNew)
		}
	}
	return rows
}
