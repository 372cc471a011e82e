package main

import (
	"bytes"
	_ "embed"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/netaddr"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

// streams are the outputs of a command: results go to out, everything else to err.
type streams struct {
	out, err io.Writer
	command  string // the name of the command, such as "token issue"
	json     bool   // the flag --json
}

// outputText has the templates for the results of the commands. Each template follows a line "##
// NAME" (see [cmdline.Sections]). NAME is the name of a command, followed by " (stderr)" if the
// template is for standard error. The templates before the first of these lines are parts of others.
//
//go:embed output.tmpl
var outputText string

// show prints v, the result of the command: with the flag --json as JSON, and otherwise with the
// templates of the command. It aligns the columns, which a template separates by tabs.
func (w streams) show(v any) error {
	if w.json {
		return printJSON(w.out, v)
	}
	return errors.Join(printResult(w.out, w.command, v), printResult(w.err, w.command+" (stderr)", v))
}

func printResult(w io.Writer, name string, v any) error {
	texts := cmdline.Sections(outputText)
	t, err := template.New(name).Funcs(outputFuncs).Parse(texts[""] + texts[name])
	if err != nil {
		return err
	}
	var text bytes.Buffer
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if err := errors.Join(t.Execute(columns, v), columns.Flush()); err != nil || text.Len() == 0 {
		return err
	}
	_, err = fmt.Fprintln(w, &text)
	return err
}

// printJSON writes v to w as indented JSON, and nothing else. The names of a map are in ascending
// order.
func printJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v, jsontext.WithIndent("  "), json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// outputFuncs are the functions that the templates in [outputText] use.
var outputFuncs = template.FuncMap{
	"ago":        ago,
	"content":    describeBackup,
	"count":      count,
	"day":        day,
	"figure":     figure,
	"isLoopback": netaddr.IsLoopback,
	"isOn":       func(b *bool) bool { return b != nil && *b },
	"join":       strings.Join,
	"last":       func(ids []vehicle.ID) vehicle.ID { return ids[len(ids)-1] },
	"latest":     func(times []time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) },
	"outcome":    func(name string) string { return strings.ReplaceAll(name, "_", " ") },
	"program":    func() string { return os.Args[0] },
	"rate":       inwords.RateLimit,
	"second":     func(t any) string { return inUTC(t, "2006-01-02 15:04:05Z") },
	"someOf":     someVehicles,
	"thousands":  func(n any) string { return inwords.Count(reflect.ValueOf(n).Int()) },
	"verdicts": func(v ops.VehicleRecord) map[string]ops.VerdictRecord {
		return map[string]ops.VerdictRecord{"driving": v.Driving, "throttle": v.Throttle}
	},
	"version": func() string { return version },
}

// day returns a time as text in UTC, to the minute, such as "2026-11-20 12:00Z" (see inUTC).
func day(t any) string { return inUTC(t, "2006-01-02 15:04Z") }

// inUTC returns t, a time.Time or a pointer to one, as text in UTC. For nil and for the zero time,
// it returns "".
func inUTC(t any, layout string) string {
	if p, ok := t.(*time.Time); ok && p != nil {
		t = *p
	}
	if at, ok := t.(time.Time); ok && !at.IsZero() {
		return at.UTC().Format(layout)
	}
	return ""
}

// ago returns as text how long before now the time t was. If t is nil, it returns "".
func ago(now time.Time, t *time.Time) string {
	if t == nil {
		return ""
	}
	return inwords.Ago(now.Sub(*t))
}

// figure formats the number v in the given unit. If v is nil, it returns "-".
func figure(unit string, v *float64, size float64) string {
	if v == nil {
		return "-"
	}
	return inwords.Measure(*v/size, unit)
}

// count returns a number of vehicles as text, or "all" if c means all vehicles.
func count(c ops.VehicleCount) string {
	if c.All {
		return "all"
	}
	return inwords.Count(c.N)
}

// someVehicles returns a set of vehicles as text: its vehicle ids, separated by ", ". Of more than
// ten ids, it has the first ten and the number of the others. If the set is all vehicles or none,
// the text is "all" or "none".
func someVehicles(v ops.VehicleList) string {
	if v.All() {
		return "all"
	}
	var names []string
	for id := range v.Sorted() {
		if len(names) == 10 {
			names = append(names, fmt.Sprintf("and %d more (--json lists them)", v.Len()-10))
			break
		}
		names = append(names, string(id))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}
