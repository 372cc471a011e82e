package drivelog

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

// readJSON tries the formats of this service and of OpenXC if f is nil.
func readJSON(l *lines, f *format.Format, a *account) (*Drive, error) {
	text, err := io.ReadAll(l.in)
	if err != nil {
		l.fail(err)
	}
	if l.err != nil {
		return nil, l.err
	}
	if l.damaged {
		a.mended.add(damagedEnd)
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	dec := format.NewDecoder()
	message := format.Message{Body: text, Vehicle: "log", Now: 1}
	for _, name := range []string{"lenient", "openxc"} {
		if f != nil {
			break
		}
		f, _ = format.Parse(name) // a test parses all presets
		dec.Decode(f, message, func(s *format.Sample) bool {
			if s.Err != nil {
				f = nil
			}
			return false
		})
	}
	if f == nil {
		return nil, errors.New("the first line is neither a sample of carstate nor an OpenXC message" + help)
	}
	d := &Drive{Format: f.Name()}
	if d.Format == "lenient" {
		d.Format = "carstate"
	}
	var samples []vehicle.Sample
	dec.Decode(f, message, func(s *format.Sample) bool {
		if d.Lines++; d.Lines > l.max.rows {
			return false
		}
		for range s.Unused {
			a.readings.add(impossible)
		}
		switch {
		case errors.Is(s.Err, format.ErrNoTime), errors.Is(s.Err, format.ErrTime):
			a.rows.add(noTime)
		case s.Err != nil:
			a.rows.add(s.Err.Error())
		case s.Skipped || s.Empty():
			a.rows.add(otherSensor)
		case len(samples) > 0 && s.Vehicle != samples[0].Vehicle:
			a.rows.add(otherVehicle)
		default:
			samples = append(samples, s.Sample)
		}
		return true
	})
	if d.Lines > l.max.rows {
		return nil, l.max.tooManyRows()
	}
	slices.SortStableFunc(samples, func(x, y vehicle.Sample) int { return cmp.Compare(x.Time, y.Time) })
	for _, s := range samples {
		at := s.Time.Sub(samples[0].Time)
		if at > longestDrive {
			a.rows.add(tooLate)
			continue
		}
		d.Rows = append(d.Rows, Row{At: at, Readings: s.Readings})
	}
	if len(samples) > 0 && isAbsolute(int64(samples[0].Time)) {
		d.Start = samples[0].Time.Time()
	}
	return d, nil
}

// The speed, which GPX 1.0 and many devices write, is in m/s.
func readGPX(l *lines, a *account) (*Drive, error) {
	t := &table{format: &logger{Format: new(format.Format), name: "GPX"}}
	signals := []signal.Signal{signal.CurrentLatitude, signal.CurrentLongitude, signal.Speed, signal.CurrentHeading}
	factors := []float64{1, 1, 3.6, 1}
	for _, s := range signals {
		t.columns = append(t.columns, column{signal: s, used: true})
	}
	var rec *record
	set := func(c int, text string) {
		if v, err := strconv.ParseFloat(strings.TrimSpace(text), 64); rec != nil && err == nil {
			rec.cells[c] = float32(v * factors[c])
		} else if rec != nil {
			a.readings.add(notANumber)
		}
	}
	var text strings.Builder
	timed, isGPX := false, false
	for dec := xml.NewDecoder(l.in); ; {
		token, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			if _, l.damaged = errors.AsType[*xml.SyntaxError](err); !l.damaged {
				l.fail(err)
			}
			switch {
			case !l.damaged:
				return nil, l.err
			case t.lines == 0:
				return nil, errUnknown
			}
			a.mended.add(damagedEnd)
			break
		}
		switch x := token.(type) {
		case xml.StartElement:
			if isGPX = isGPX || x.Name.Local == "gpx"; !isGPX {
				return nil, errUnknown
			}
			text.Reset()
			if x.Name.Local == "trkpt" {
				rec, timed = &record{line: t.lines, cells: t.blank()}, false
				for _, at := range x.Attr {
					if c := slices.Index([]string{"lat", "lon"}, at.Name.Local); c >= 0 {
						set(c, at.Value)
					}
				}
			}
		case xml.CharData:
			if text.Len() < 100 {
				text.Write(x)
			}
		case xml.EndElement:
			switch x.Name.Local {
			case "time":
				at, err := time.Parse(time.RFC3339, strings.TrimSpace(text.String()))
				if rec != nil && err == nil && isAbsolute(at.UnixMilli()) {
					rec.stamp, timed = at.UnixMilli(), true
				}
			case "speed":
				set(2, text.String())
			case "course":
				set(3, text.String())
			case "trkpt":
				if t.lines++; t.lines > l.max.rows {
					return nil, l.max.tooManyRows()
				}
				if rec != nil && timed {
					t.records = append(t.records, *rec)
				} else {
					a.rows.add(noTime)
				}
				rec = nil
			}
		}
	}
	at := plainClock(t, a)
	return &Drive{Format: "GPX", Start: t.start(), Rows: assemble(t, at, everyCell(t, at), a), Lines: t.lines}, nil
}
