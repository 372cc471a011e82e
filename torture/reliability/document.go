// Package reliability stores the results of the torture and renders them as a document.
package reliability

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/row"
)

// Done is the last run of one row.
type Done struct {
	Row      string        `json:"row"`
	Machine  string        `json:"machine"`
	Version  string        `json:"version"` // of carstate
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took_ns"` // without the controls
	Seed     uint64        `json:"seed"`
	Count    int           `json:"count"`
	Outcome  row.Outcome   `json:"outcome"`
	Controls []Control     `json:"controls,omitempty"`
}

// Control says whether a row caught a control, which is a build that was broken on purpose.
type Control struct {
	Defect string        `json:"defect"`
	Caught bool          `json:"caught"`
	By     string        `json:"by,omitempty"` // the finding that caught it, or else the first finding
	Took   time.Duration `json:"took_ns"`
}

// Document holds the last run of every row.
type Document struct {
	Rows []Done `json:"rows"`
}

// Load reads the document of a directory. It is empty if there is no file.
func Load(docs string) (d Document, err error) {
	err = report.ReadResults(filepath.Join(docs, "reliability.json"), &d)
	return d, err
}

// Replace replaces the stored run of a row by a new one.
func (d *Document) Replace(done Done) {
	d.Rows = append(slices.DeleteFunc(d.Rows, func(o Done) bool { return o.Row == done.Row }), done)
}

// Save writes the results, and the page with all rows in their order, into a directory.
func (d *Document) Save(docs string, rows []row.Row) (err error) {
	defer must.Catch(&err)
	text, page := must.Get(json.MarshalIndent(d, "", " ")), must.Get(d.page(rows))
	must.Do(os.WriteFile(filepath.Join(docs, "reliability.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(docs, "reliability.md"), []byte(page), 0o644))
	return nil
}

func (o *Done) Line() string {
	line := fmt.Sprintf("%-10s seed %d: %d done in %s, offered %d, acknowledged %d, lost %d, wrong %d; controls caught %s",
		o.Row, o.Seed, o.Count, o.Took.Round(time.Second), o.Outcome.Offered, o.Outcome.Acknowledged, o.Outcome.Lost,
		o.Outcome.Wrong, o.Caught())
	if o.Outcome.Undone != "" {
		line += "; " + o.Outcome.Undone
	}
	return line
}

// Caught returns how many controls were caught, and of how many, such as "2 of 3".
func (o *Done) Caught() string { return caught(o.Controls) }

func caught(controls []Control) string {
	missed := slices.DeleteFunc(slices.Clone(controls), func(c Control) bool { return c.Caught })
	return fmt.Sprintf("%d of %d", len(controls)-len(missed), len(controls))
}

//go:embed page.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"date":      func(t time.Time) string { return t.Format(time.DateOnly) },
	"seconds":   func(d time.Duration) time.Duration { return d.Round(time.Second) },
	"thousands": func(n any) string { return report.Thousands(fmt.Sprint(n)) },
	"number":    number,
	"join":      strings.Join,
}).Parse(pageText))

// number formats a value. An integer, and any value of 1000 or more, has all its digits before the
// point and none after it. Any other value has up to three significant digits.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 || math.Abs(v) >= 1000 {
		return report.Thousands(strconv.FormatInt(int64(math.Round(v)), 10))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func (d *Document) page(rows []row.Row) (string, error) {
	data := struct {
		Rows   []section
		Total  row.Outcome // of all rows that were run
		Run    int         // number of these rows
		Caught string      // controls that these rows caught: "2 of 3"
		Failed []string    // titles of the rows with findings, or not completed
	}{}
	var controls []Control
	for _, r := range rows {
		i := slices.IndexFunc(d.Rows, func(o Done) bool { return o.Row == r.Name })
		if i < 0 {
			data.Rows = append(data.Rows, section{Row: r})
			continue
		}
		done := &d.Rows[i]
		data.Rows = append(data.Rows, section{Row: r, Done: done})
		data.Run++
		data.Total.Acknowledged += done.Outcome.Acknowledged
		data.Total.Lost += done.Outcome.Lost
		data.Total.Wrong += done.Outcome.Wrong
		controls = append(controls, done.Controls...)
		if !done.Outcome.Passed() {
			data.Failed = append(data.Failed, r.Title)
		}
	}
	data.Caught = caught(controls)
	text, err := execute(pageTemplate, data)
	return report.Wrap(text), err
}

func execute(t *template.Template, data any) (string, error) {
	var b strings.Builder
	err := t.Execute(&b, data)
	return b.String(), err
}

// section is all that the page shows about one row.
type section struct {
	row.Row
	Done *Done // nil: not run yet
}

func (s section) Body() (body string, err error) {
	defer must.Catch(&err)
	t := must.Get(template.New(s.Name).Option("missingkey=error").Parse(s.Text))
	results := must.Get(execute(pageTemplate.Lookup("results"), s))
	fields := map[string]any{"Results": strings.TrimSpace(results)}
	maps.Copy(fields, s.Fields)
	return strings.TrimSpace(must.Get(execute(t, fields))), nil
}

// Caught returns the last two cells of a control's line: whether the control was caught, and the
// finding that caught it. If it was not caught, the second cell has the first finding instead.
func (s section) Caught(c defects.Control) string {
	i := slices.IndexFunc(s.Done.Controls, func(done Control) bool { return done.Defect == c.Defect })
	if i < 0 {
		return "not run | "
	}
	caught, by := "yes", s.Done.Controls[i].By
	if !s.Done.Controls[i].Caught {
		caught, by = "**no**", "found instead: "+cmp.Or(by, "nothing")
	}
	return caught + " | " + strings.ReplaceAll(strings.TrimSpace(by), "|", "\\|")
}

// Anchor returns the fragment of the heading's URL.
func (s section) Anchor() string {
	words := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(s.Title), "")
	return fmt.Sprintf("%d-%s", s.Number, strings.ReplaceAll(words, " ", "-"))
}
