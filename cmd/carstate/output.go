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

type streams struct {
	out, err io.Writer
	command  string
	json     bool
}

// outputText has templates by the names of commands (see [cmdline.Sections]), with " (stderr)" for
// those of standard error. Templates before the first are parts of others.
//
//go:embed output.tmpl
var outputText string

func (w streams) show(v any) error {
	if !w.json {
		return errors.Join(printResult(w.out, w.command, v), printResult(w.err, w.command+" (stderr)", v))
	}
	text, err := json.Marshal(v, jsontext.WithIndent("  "), json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w.out, "%s\n", text)
	return err
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

var outputFuncs = template.FuncMap{
	"ago":        func(now, t time.Time) string { return inwords.Ago(now.Sub(t)) },
	"bytes":      inwords.Bytes,
	"content":    describeBackup,
	"day":        day,
	"gib":        func(bytes float64) string { return inwords.Measure(bytes/(1<<30), "GiB") },
	"isLoopback": netaddr.IsLoopback,
	"isOn":       func(b *bool) bool { return b != nil && *b },
	"join":       strings.Join,
	"last":       func(ids []vehicle.ID) vehicle.ID { return ids[len(ids)-1] },
	"latest":     func(times []time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) },
	"measure":    inwords.Measure,
	"outcome":    func(name string) string { return strings.ReplaceAll(name, "_", " ") },
	"program":    func() string { return os.Args[0] },
	"rate":       inwords.RateLimit,
	"second":     func(t any) string { return inUTC(t, "2006-01-02 15:04:05Z") },
	"tenths":     func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"thousands":  func(n any) string { return inwords.Count(reflect.ValueOf(n).Int()) },
	"verdicts": func(v ops.VehicleRecord) map[string]ops.VerdictRecord {
		return map[string]ops.VerdictRecord{"driving": v.Driving, "throttle": v.Throttle}
	},
	"version": func() string { return version },
}

func day(t any) string { return inUTC(t, "2006-01-02 15:04Z") }

// inUTC formats a time.Time or a pointer to one. Nil and the zero time are "".
func inUTC(t any, layout string) string {
	if p, ok := t.(*time.Time); ok && p != nil {
		t = *p
	}
	if at, ok := t.(time.Time); ok && !at.IsZero() {
		return at.UTC().Format(layout)
	}
	return ""
}
