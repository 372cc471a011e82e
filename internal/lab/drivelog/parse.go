package drivelog

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

func readTable(l *lines, a *account) (t *table, err error) {
	joined := false
	for text := range l.all {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if t == nil {
			if t, err = parseHeader(text); err != nil {
				return nil, err
			}
			continue
		}
		if text == t.header {
			a.mend(repeatedHeader)
			joined = true
			continue
		}
		if t.lines++; t.lines > l.max.rows {
			return nil, fmt.Errorf("more than %d rows; split the file", l.max.rows)
		}
		if rec, ok := t.parse(text, a); ok {
			rec.line, rec.joined = t.lines-1, joined
			joined = false
			t.records = append(t.records, rec)
		}
	}
	if l.damaged {
		a.mend(damagedEnd)
	}
	if t == nil && l.err == nil {
		return nil, errUnknown
	}
	return t, l.err
}

// parseHeader parses the header, the first line that is not blank, and returns a table without
// rows. If the format is unknown, the error is errUnknown.
func parseHeader(text string) (*table, error) {
	t := &table{header: text, comma: ",", timeAt: -1, labelAt: -1}
	if strings.Contains(t.header, ";") {
		t.comma = ";"
	}
	var keys []string
	for cell := range strings.SplitSeq(t.header, t.comma) {
		if keys = append(keys, columnKey(cell)); len(keys) > maxColumns {
			return nil, errUnknown
		}
	}
	var err error
	if t.format, err = findFormat(keys); err != nil {
		return nil, err
	}
	t.width = len(keys)
	for i, k := range keys {
		t.cellAt = append(t.cellAt, -1)
		col, known := t.format.columns[k]
		switch {
		case k == "" || slices.Contains(keys[:i], k): // no name, or a second column of one name: the first is used
		case k == t.format.time:
			t.timeAt = i
		case k == t.format.label:
			t.labelAt = i
		case known || t.format.watchAll:
			t.cellAt[i] = len(t.columns)
			t.columns = append(t.columns, col)
		}
	}
	return t, nil
}

// parse parses the text of a row. If it cannot be used, ok is false, and a counts the reason.
func (t *table) parse(text string, a *account) (rec record, ok bool) {
	cells := strings.Split(text, t.comma)
	for len(cells) > t.width && trimCell(cells[len(cells)-1]) == "" {
		cells = cells[:len(cells)-1] // a separator after the last cell
	}
	if len(cells) > t.width {
		a.row(tooLong)
		return rec, false
	}
	last := len(cells) // index of a cell that may be cut off in the middle
	if len(cells) < t.width && trimCell(cells[len(cells)-1]) != "" {
		last--
	}
	rec.cells = make([]float32, len(t.columns))
	for i := range rec.cells {
		rec.cells[i] = float32(math.NaN())
	}
	ok = t.timeAt < 0
	for i, cell := range cells {
		cell = trimCell(cell)
		c := t.cellAt[i]
		switch {
		case cell == "":
		case i == last:
			if i == t.labelAt || c >= 0 && t.columns[c].used {
				a.reading(cutOff)
			}
		case i == t.timeAt:
			rec.stamp, ok = t.format.stamp(t.number(cell))
		case i == t.labelAt:
			if rec.label = labels[cell]; rec.label == 0 {
				a.reading(unknownLabel)
			}
		case c >= 0:
			v, err := strconv.ParseFloat(t.number(cell), 64)
			if col := t.columns[c]; err == nil && !math.IsNaN(v) {
				if col.used {
					v *= col.factor
				}
				rec.cells[c] = float32(v)
			} else if col.used {
				a.reading(notANumber)
			}
		}
	}
	if !ok {
		a.row(noTime)
	}
	return rec, ok
}

// number returns the text of a cell with a point as the decimal separator, so that Go can parse it.
// In logs whose cells are separated by semicolons, the decimal separator is a comma.
func (t *table) number(cell string) string {
	if t.comma == ";" {
		return strings.Replace(cell, ",", ".", 1)
	}
	return cell
}
