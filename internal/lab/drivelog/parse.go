package drivelog

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
)

func readTable(l *lines, as *format.Format, a *account) (t *table, err error) {
	joined := false
	for text := range l.all {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		if t == nil {
			first := text
			if as != nil && as.Log.Header != "" {
				first = as.Log.Header
			}
			if t, err = parseHeader(first, as); err != nil {
				return nil, err
			}
			if first == text {
				continue
			}
		}
		if text == t.header {
			a.mended.add(repeatedHeader)
			joined = true
			continue
		}
		if t.lines++; t.lines > l.max.rows {
			return nil, l.max.tooManyRows()
		}
		if rec, ok := t.parse(text, a); ok {
			rec.line, rec.joined = t.lines-1, joined
			joined = false
			t.records = append(t.records, rec)
		}
	}
	if l.damaged {
		a.mended.add(damagedEnd)
	}
	if t == nil && l.err == nil {
		return nil, errUnknown
	}
	return t, l.err
}

func parseHeader(text string, as *format.Format) (*table, error) {
	t := &table{header: text, comma: ",", nameAt: -1, codes: make(map[int][]signal.TroubleCode)}
	for _, other := range []string{";", "\t"} {
		if strings.Contains(text, other) {
			t.comma = other
		}
	}
	var h header
	for cell := range strings.SplitSeq(text, t.comma) {
		if h = append(h, parseHeaderCell(cell)); len(h) > 1000 {
			return nil, errUnknown
		}
	}
	var err error
	if as == nil {
		t.format, err = findFormat(h)
	} else {
		t.format, err = newLogger(as)
	}
	if err != nil {
		return nil, err
	}
	if lacks := t.format.lacks(h); lacks != nil {
		return nil, fmt.Errorf("the header lacks the column %s of the format %s%s", strings.Join(lacks, ", "),
			t.format.name, help)
	}
	columns, err := t.format.columnsOf(h)
	if err != nil {
		return nil, err
	}
	t.width, t.timeAt, t.labelAt = len(h), h.find(t.format.Time.Path), h.find([]string{t.format.Log.Label})
	if names := t.format.Names.Path; names != nil {
		return t, t.nameColumns(h)
	}
	session := -1
	if t.format.Log.Clock == "sessions" {
		session = h.find([]string{sessionColumn})
	}
	for i, cell := range h {
		t.cellAt = append(t.cellAt, -1)
		col, used := columns[i]
		watched := t.format.Log.Rows == "round robin" && cell.name != "" && h.find([]string{cell.whole}) == i
		if i != t.timeAt && i != t.labelAt && (used || watched || i == session) {
			t.cellAt[i] = len(t.columns)
			t.columns = append(t.columns, col)
		}
	}
	if len(t.columns) > maxColumns || len(columns) == 0 {
		return nil, errUnknown
	}
	return t, nil
}

// nameColumns is for rows that name their sensors.
func (t *table) nameColumns(h header) error {
	f := t.format
	t.nameAt, t.valueAt, t.unitAt = h.find(f.Names.Path), h.find(f.Value), h.find([]string{f.Log.Unit})
	if t.byName = make(map[string]int); t.nameAt < 0 || t.valueAt < 0 {
		return errors.New("the header lacks the column of the name or the value" + help)
	}
	for name, places := range f.Signals {
		s, _ := signal.ByName(name) // Parse has checked it
		for _, p := range places {
			factor, _ := p.FactorTo(s)
			t.byName[strings.ToLower(p.Name)] = len(t.columns)
			t.columns = append(t.columns, column{s, true, factor, p.Values})
		}
	}
	if len(t.columns) > maxColumns {
		return errUnknown
	}
	return nil
}

func (t *table) parse(text string, a *account) (rec record, ok bool) {
	cells := strings.Split(text, t.comma)
	for len(cells) > t.width && trimCell(cells[len(cells)-1]) == "" {
		cells = cells[:len(cells)-1] // a separator after the last cell
	}
	if len(cells) > t.width {
		a.rows.add(tooLong)
		return rec, false
	}
	last := len(cells) // index of a cell that may be cut off
	if len(cells) < t.width && trimCell(cells[len(cells)-1]) != "" && t.format.Log.Header == "" {
		last--
	}
	rec.cells = t.blank()
	ok = t.timeAt < 0
	if t.nameAt >= 0 {
		t.parseNamed(&rec, cells, last, a)
	}
	for i, cell := range cells {
		cell = trimCell(cell)
		c := -1
		if i < len(t.cellAt) {
			c = t.cellAt[i]
		}
		switch {
		case cell == "":
		case i == last:
			if i == t.labelAt || c >= 0 && t.columns[c].used {
				a.readings.add(cutOff)
			}
		case i == t.timeAt:
			var at signal.UnixMilli
			at, ok = t.format.ParseTime(t.number(cell))
			rec.stamp, ok = int64(at), ok && t.isReadable(int64(at))
		case i == t.labelAt:
			if rec.label = t.format.labels[cell]; rec.label == 0 {
				a.readings.add(unknownLabel)
			}
		case c >= 0:
			t.set(&rec, c, cell, t.columns[c].factor, a)
		}
	}
	if !ok {
		a.rows.add(noTime)
	}
	return rec, ok
}

func (t *table) parseNamed(rec *record, cells []string, last int, a *account) {
	if t.nameAt >= last || t.valueAt >= last {
		return
	}
	c, ok := t.byName[strings.ToLower(trimCell(cells[t.nameAt]))]
	if !ok {
		return
	}
	factor := t.columns[c].factor
	if t.unitAt >= 0 && t.unitAt < last && trimCell(cells[t.unitAt]) != "" {
		var err error
		if factor, err = format.Factor(t.columns[c].signal, trimCell(cells[t.unitAt])); err != nil {
			a.readings.add(unknownUnit)
			return
		}
	}
	if cell := trimCell(cells[t.valueAt]); cell != "" {
		t.set(rec, c, cell, factor, a)
	}
}

// Loggers write a dash for what was not read.
func (t *table) set(rec *record, c int, cell string, factor float64, a *account) {
	col := &t.columns[c]
	if col.used && col.isText() {
		var r signal.Readings
		if err := format.SetText(&r, col.signal, col.values, factor, cell); err != nil {
			a.readings.add(notANumber)
		}
		if v, ok := r.Value(col.signal); ok {
			rec.cells[c] = float32(v)
			if r.Codes != nil {
				t.codes[t.lines-1] = r.Codes
			}
		}
		return
	}
	v, err := strconv.ParseFloat(t.number(cell), 64)
	if err == nil && !math.IsNaN(v) {
		if col.used {
			v *= factor
		}
		rec.cells[c] = float32(v)
	} else if col.used && cell != "-" {
		a.readings.add(notANumber)
	}
}

// With semicolons between cells, the decimal separator is a comma.
func (t *table) number(cell string) string {
	if t.comma == ";" {
		return strings.Replace(cell, ",", ".", 1)
	}
	return cell
}
