package ops

import (
	"bufio"
	"encoding/csv"
	"encoding/json/v2"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"

	"carstate/internal/access"
)

// ExportFormats are the formats of a whole list, and their media types.
var ExportFormats = map[string]string{"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}

// FormatAsked reads which format a request wants: by its parameter format, or by Accept. "" is a
// page as JSON.
func FormatAsked(r *http.Request) (string, error) {
	if formats := r.URL.Query()["format"]; len(formats) > 0 {
		if _, known := ExportFormats[formats[0]]; !known && formats[0] != "json" || len(formats) != 1 {
			return "", Refuse(http.StatusBadRequest, "format is json, ndjson or csv")
		}
		return strings.TrimPrefix(formats[0], "json"), nil
	}
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		t, _, _ := mime.ParseMediaType(accepted)
		for format, kind := range ExportFormats {
			if of, _, _ := strings.Cut(kind, ";"); t == of {
				return format, nil
			}
		}
	}
	return "", nil
}

// csvHeader names the columns of the list of vehicles.
var csvHeader = []string{
	"vid", "driving_outcome", "driving_verdict", "driving_value", "driving_time",
	"throttle_outcome", "throttle_verdict", "throttle_value", "throttle_time",
}

// ServeVehicles answers with every vehicle of a list, in a format of ExportFormats. It remembers a
// thousandth of the vids at a time. An export that breaks off closes the connection.
func (p *Operations) ServeVehicles(w http.ResponseWriter, r *http.Request, q VehicleQuery, format string) error {
	out := bufio.NewWriterSize(Moving{W: w, C: http.NewResponseController(w)}, 32<<10)
	lines := csv.NewWriter(out)
	begun := false
	begin := func() error {
		begun = true
		w.Header().Set("Content-Type", ExportFormats[format])
		w.Header().Set("Content-Disposition", `attachment; filename="vehicles.`+format+`"`)
		if format == "csv" {
			return lines.Write(csvHeader)
		}
		return nil
	}
	err := p.EachVehicle(r.Context(), q, func(v ListedVehicle) error {
		if !begun {
			if err := begin(); err != nil {
				return err
			}
		}
		if format == "csv" {
			return lines.Write(v.columns())
		}
		if err := json.MarshalWrite(out, v); err != nil {
			return err
		}
		return out.WriteByte('\n')
	})
	if _, refused := errors.AsType[*Refusal](err); refused {
		return err
	}
	if err == nil && !begun {
		err = begin()
	}
	lines.Flush()
	if err := errors.Join(err, lines.Error(), out.Flush()); err != nil {
		p.cfg.Log.Info("an export of vehicles broke off", "error", access.OneLine(err))
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (v ListedVehicle) columns() []string {
	columns := []string{v.VID}
	for _, verdict := range []ListedVerdict{v.Driving, v.Throttle} {
		at := ""
		if verdict.Time != nil {
			at = verdict.Time.UTC().Format(time.RFC3339Nano)
		}
		columns = append(columns, verdict.Outcome, verdict.Verdict, verdict.Value, at)
	}
	for i := range columns {
		columns[i] = spreadsheetSafe(columns[i])
	}
	return columns
}

// spreadsheetSafe is a text that a spreadsheet takes for no formula, without characters that
// steer what shows it.
func spreadsheetSafe(text string) string {
	text = access.Printable(text)
	if trimmed := strings.TrimLeftFunc(text, unicode.IsSpace); trimmed != "" && strings.ContainsRune("=+-@|%＝＋－＠", []rune(trimmed)[0]) {
		return "'" + text
	}
	return text
}
