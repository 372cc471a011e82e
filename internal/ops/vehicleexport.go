package ops

import (
	"bufio"
	"encoding/csv"
	"encoding/json/v2"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
)

var ExportFormats = map[string]string{"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}

// FormatAsked reads the parameter "format" or the Accept header; "" is one page as JSON.
func FormatAsked(r *http.Request) (string, error) {
	if formats := r.URL.Query()["format"]; len(formats) > 0 {
		if _, known := ExportFormats[formats[0]]; !known && formats[0] != "json" || len(formats) != 1 {
			return "", Refusalf(http.StatusBadRequest, "format is json, ndjson or csv")
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

// row has the columns of CSV; as JSON, it is a line of NDJSON.
type row interface{ columns() []string }

// serve sends the rows that each passes to do, as a file. It panics with [http.ErrAbortHandler] if it
// fails halfway, so that the client notices that the file is incomplete.
func (p *Operations) serve(
	w http.ResponseWriter, name, format string, header []string, each func(do func(row) error) error,
) error {
	kind, known := ExportFormats[format]
	if !known {
		return Refusalf(http.StatusBadRequest, "format is ndjson or csv")
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+"."+format+`"`)
	out := bufio.NewWriterSize(Moving{W: w}, 32<<10)
	lines := csv.NewWriter(out)
	if format == "csv" {
		_ = lines.Write(header) // lines.Error has the error
	}
	err := each(func(r row) error {
		if format == "csv" {
			columns := r.columns()
			for i := range columns {
				columns[i] = spreadsheetSafe(columns[i])
			}
			return lines.Write(columns)
		}
		if err := json.MarshalWrite(out, r); err != nil {
			return err
		}
		return out.WriteByte('\n')
	})
	lines.Flush()
	if err := errors.Join(err, lines.Error(), out.Flush()); err != nil {
		p.cfg.Log.Info("an export failed halfway", "list", name, "error", access.OneLine(err))
		panic(http.ErrAbortHandler)
	}
	return nil
}

// ServeVehicles lists in no order, and holds about a thousandth of all vids in memory. q has no
// Sort, Limit or Cursor. After an error, nothing was sent.
func (p *Operations) ServeVehicles(w http.ResponseWriter, r *http.Request, q VehicleQuery, format string) error {
	if err := p.mayList(); err != nil {
		return err
	}
	if q.Sort != "" || q.Limit != 0 || q.Cursor != "" {
		return Refusalf(http.StatusBadRequest,
			"an export has every vehicle of the list, in no order: leave out sort, limit and cursor")
	}
	clock := func() signal.UnixMilli { return signal.At(p.cfg.Now()) } // the client may read for minutes
	question, err := p.question(q, clock)
	if err != nil {
		return err
	}
	header := []string{
		"vid", "driving_outcome", "driving_verdict", "driving_value", "driving_time",
		"throttle_outcome", "throttle_verdict", "throttle_value", "throttle_time",
	}
	return p.serve(w, "vehicles", format, header, func(do func(row) error) error {
		return p.cfg.Fleet.Each(r.Context(), question, func(l fleet.Listed) error {
			return do(p.listedVehicle(l, clock()))
		})
	})
}

// ServeAudit holds one page in memory. q has no Limit or Before. After an error, nothing was sent.
func (p *Operations) ServeAudit(w http.ResponseWriter, r *http.Request, q AuditQuery, format string) error {
	if q.Limit != 0 || q.Before != 0 {
		return Refusalf(http.StatusBadRequest, "an export contains every matching event: leave out limit and before")
	}
	q.Limit = MaxEvents
	page, err := p.Audit(r.Context(), q)
	if err != nil {
		return err
	}
	header := []string{"time", "actor", "admin", "action", "object", "detail", "outcome"}
	return p.serve(w, "audit", format, header, func(do func(row) error) error {
		for {
			for _, e := range page.Events {
				if err := do(exportedEvent{e}); err != nil {
					return err
				}
			}
			if page.Older == 0 {
				return nil
			}
			Moving{W: w}.extend() // many empty pages may follow
			q.Before = page.Older
			if page, err = p.Audit(r.Context(), q); err != nil {
				return err
			}
		}
	})
}

type exportedEvent struct{ access.Event }

func (e exportedEvent) columns() []string {
	at := e.Time.UTC().Format(time.RFC3339Nano)
	return []string{at, e.Actor, strconv.FormatBool(e.Admin), e.Action, e.Object, e.Detail, e.Outcome}
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
	return columns
}

// spreadsheetSafe puts an apostrophe before what could be a formula.
func spreadsheetSafe(text string) string {
	text = access.Printable(text)
	if trimmed := strings.TrimLeftFunc(text, unicode.IsSpace); trimmed != "" &&
		strings.ContainsRune("=+-@|%＝＋－＠", []rune(trimmed)[0]) {
		return "'" + text
	}
	return text
}
