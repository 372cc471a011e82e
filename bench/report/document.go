package report

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Run says when and where a part was measured.
type Run struct {
	Part    string        `json:"part"`
	Machine string        `json:"machine"`
	Version string        `json:"version"` // of carstate
	At      time.Time     `json:"at"`
	Took    time.Duration `json:"took_ns"`
	Rounds  int           `json:"rounds"`
	Quick   bool          `json:"quick,omitempty"`
}

// Document holds the results of the last run of every part.
type Document struct {
	Runs    []Run    `json:"runs"`
	Figures []Figure `json:"figures"`
	Plots   []Plot   `json:"plots"`
}

// The files of the document, relative to the directory of documents.
const (
	pageFile    = "performance.md"
	plotDir     = "performance"
	resultsFile = "performance/results.json"
)

// Load reads the document of a directory. It is empty if there is no file.
func Load(docs string) (d Document, err error) {
	err = ReadResults(filepath.Join(docs, resultsFile), &d)
	return d, err
}

// ReadResults decodes a file of results into the variable to which into points. If there is no
// file, the variable remains unchanged.
func ReadResults(file string, into any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("cannot read the stored results: %w", err)
	}
	return nil
}

// Replace replaces the results of a part by those of a new run.
func (d *Document) Replace(run Run, p *Part) {
	d.Runs = append(slices.DeleteFunc(d.Runs, func(o Run) bool { return o.Part == run.Part }), run)
	d.Figures = append(slices.DeleteFunc(d.Figures, func(f Figure) bool { return f.Part == run.Part }), p.Figures...)
	d.Plots = append(slices.DeleteFunc(d.Plots, func(p Plot) bool { return p.Part == run.Part }), p.Plots...)
}

// Save writes the results, the page and the plots into a directory of documents. If a file cannot be
// written, Save still writes the others, and returns all errors.
func (d *Document) Save(docs string) error {
	if err := os.MkdirAll(filepath.Join(docs, plotDir), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(docs, resultsFile), append(text, '\n'), 0o644)
	page, failed := d.page()
	if failed == nil {
		failed = os.WriteFile(filepath.Join(docs, pageFile), []byte(page), 0o644)
	}
	err = errors.Join(err, failed)
	for _, p := range d.Plots {
		err = errors.Join(err, os.WriteFile(filepath.Join(docs, plotDir, p.File+".svg"), []byte(p.svg()), 0o644))
	}
	return err
}

// page renders the page on performance.
func (d *Document) page() (string, error) {
	return d.render("performance.md.tmpl", d, template.FuncMap{"run": d.run, "aims": d.aims, "figure": d.figure})
}

// Print writes the results of a part as the page shows them.
func (d *Document) Print(w io.Writer, part string) error {
	return template.Must(template.ParseFS(pages, "figures.md.tmpl")).ExecuteTemplate(w, "figures", d.section(part))
}

//go:embed *.md.tmpl
var pages embed.FS

// render executes the template name, with funcs added to the functions of all pages, and wraps the
// lines of the result.
func (d *Document) render(name string, data any, funcs template.FuncMap) (string, error) {
	t := template.New(name).Funcs(template.FuncMap{
		"num":     number,
		"date":    func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"plural":  plural,
		"section": d.section,
	}).Funcs(funcs)
	var b strings.Builder
	if _, err := t.ParseFS(pages, name, "figures.md.tmpl"); err != nil {
		return "", err
	}
	if err := t.Execute(&b, data); err != nil {
		return "", err
	}
	return Wrap(strings.TrimRight(b.String(), "\n") + "\n"), nil
}

// run returns the last run of a part; nil if the part was never measured.
func (d *Document) run(part string) *Run {
	if i := slices.IndexFunc(d.Runs, func(r Run) bool { return r.Part == part }); i >= 0 {
		return &d.Runs[i]
	}
	return nil
}

// figure returns the figure of a name, or nil if it was not measured.
func (d *Document) figure(part, subject, name string) *Figure {
	for i, f := range d.Figures {
		if f.Part == part && f.Subject == subject && f.Name == name {
			return &d.Figures[i]
		}
	}
	return nil
}

// scalePart is the part whose figures are not on the page on performance.
const scalePart = "scale"

// aims counts the aims of the page on performance, and those of them that were met. The aims of the
// part scale are not among them.
func (d *Document) aims() (n struct{ Met, All int }) {
	for _, f := range d.Figures {
		if f.Part != scalePart && f.Met != nil {
			n.All++
			if *f.Met {
				n.Met++
			}
		}
	}
	return n
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Verdict says in Markdown whether the aim was met: "yes" or "**no**". It is "" if there is no aim.
func (f *Figure) Verdict() string {
	switch {
	case f.Met == nil:
		return ""
	case *f.Met:
		return "yes"
	}
	return "**no**"
}

// Reached reports whether the aim was reached. It is true if there is no aim.
func (f *Figure) Reached() bool { return f.Met == nil || *f.Met }

// section is what a page shows of the results of a part.
type section struct {
	Run      *Run
	Aims     []*Figure   // figures that have an aim
	Tables   [][]*column // figures that were measured for the same subjects are columns of one table
	Meanings []meaning   // of the figures in Tables
	Lonely   []*Figure   // of one subject only; without those that the table of aims shows completely
	Plots    []Plot
}

type column struct {
	Name    string
	Figures []*Figure // one for each subject
}

// meaning is the remark of figures. Figure is their name, with their subjects if figures of that name
// have several remarks.
type meaning struct{ Figure, Remark string }

// maxColumns is the maximum number of figures that a table has side by side.
const maxColumns = 5

func (d *Document) section(part string) section {
	s := section{Run: d.run(part)}
	for _, p := range d.Plots {
		if p.Part == part {
			s.Plots = append(s.Plots, p)
		}
	}
	var columns []*column
	for i := range d.Figures {
		f := &d.Figures[i]
		if f.Part != part {
			continue
		}
		if f.Aim != "" {
			s.Aims = append(s.Aims, f)
		}
		name := strings.TrimSuffix(f.Name+", "+f.Unit, ", ")
		j := slices.IndexFunc(columns, func(c *column) bool {
			return c.Name == name && !slices.ContainsFunc(c.Figures, func(o *Figure) bool { return o.Subject == f.Subject })
		})
		if j < 0 {
			j = len(columns)
			columns = append(columns, &column{Name: name})
		}
		columns[j].Figures = append(columns[j].Figures, f)
	}
	sameSubject := func(a, b *Figure) bool { return a.Subject == b.Subject }
	var shown []*Figure // in tables, row by row
	for len(columns) > 0 {
		var table, rest []*column
		for _, c := range columns {
			if len(table) < maxColumns && slices.EqualFunc(c.Figures, columns[0].Figures, sameSubject) {
				table = append(table, c)
			} else {
				rest = append(rest, c)
			}
		}
		rows := columns[0].Figures
		columns = rest
		for i := range rows {
			for _, c := range table {
				if f := c.Figures[i]; len(rows) > 1 {
					shown = append(shown, f)
				} else if f.Aim == "" || f.Remark != "" {
					s.Lonely = append(s.Lonely, f)
				}
			}
		}
		if len(rows) > 1 {
			s.Tables = append(s.Tables, table)
		}
	}
	s.Meanings = meanings(shown)
	return s
}

// meanings returns each remark of the figures once. Empty remarks are left out.
func meanings(figures []*Figure) (all []meaning) {
	var different []meaning
	subjects, remarks := make(map[meaning][]string), make(map[string]int)
	for _, f := range figures {
		m := meaning{f.Name, f.Remark}
		if subjects[m] == nil {
			different = append(different, m)
			remarks[f.Name]++
		}
		subjects[m] = append(subjects[m], f.Subject)
	}
	for _, m := range different {
		if m.Remark == "" {
			continue
		}
		if remarks[m.Figure] > 1 {
			all = append(all, meaning{m.Figure + " (" + strings.Join(subjects[m], "; ") + ")", m.Remark})
		} else {
			all = append(all, m)
		}
	}
	return all
}
