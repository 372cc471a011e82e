package report

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
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
	pageFile      = "performance.md"
	scalePageFile = "scale.md"
	plotDir       = "performance"
	resultsFile   = "performance/results.json"
)

// Load reads the document of a directory. It is empty if there is no file.
func Load(docs string) (d Document, err error) {
	err = ReadResults(filepath.Join(docs, resultsFile), &d)
	return d, err
}

// ReadResults decodes a file of results into the variable to which the parameter into points. If
// there is no file, the variable remains unchanged.
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
func (d *Document) Replace(run Run, r *Results) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.Runs = append(slices.DeleteFunc(d.Runs, func(o Run) bool { return o.Part == run.Part }), run)
	d.Figures = slices.DeleteFunc(d.Figures, func(f Figure) bool { return f.Part == run.Part })
	d.Plots = slices.DeleteFunc(d.Plots, func(p Plot) bool { return p.Part == run.Part })
	for _, f := range r.Figures {
		if f.Part == run.Part {
			d.Figures = append(d.Figures, f)
		}
	}
	for _, p := range r.Plots {
		if p.Part == run.Part {
			d.Plots = append(d.Plots, p)
		}
	}
}

// Save writes the results, the pages and the plots into a directory of documents.
func (d *Document) Save(docs string) error {
	if err := os.MkdirAll(filepath.Join(docs, plotDir), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(docs, resultsFile), append(text, '\n'), 0o644)
	for file, render := range map[string]func() (string, error){pageFile: d.page, scalePageFile: d.scalePage} {
		page, failed := render()
		if failed == nil && page != "" {
			failed = os.WriteFile(filepath.Join(docs, file), []byte(page), 0o644)
		}
		err = errors.Join(err, failed)
	}
	for _, p := range d.Plots {
		err = errors.Join(err, os.WriteFile(filepath.Join(docs, plotDir, p.File+".svg"), []byte(p.svg()), 0o644))
	}
	return err
}

// page renders the page on performance.
func (d *Document) page() (string, error) {
	return d.render("performance.md.tmpl", d, template.FuncMap{
		"machines": d.machines,
		"run":      d.run,
		"aims":     d.aimsMet,
		"figure":   d.figure,
		"figures": func(part string) string {
			of := d.figures(func(f *Figure) bool { return f.Part == part })
			return d.quick(part) + aims(of) + tables(of) + d.pictures(part)
		},
	})
}

//go:embed *.md.tmpl
var pages embed.FS

// render executes the template of a page.
func (d *Document) render(name string, data any, funcs template.FuncMap) (string, error) {
	t := template.New(name).Funcs(template.FuncMap{
		"num":   number,
		"cars":  count,
		"exact": func(v float64) string { return Thousands(fmt.Sprintf("%.0f", v)) }, // a number of machines
		"some":  func(v float64) string { return quantity(v, "n") },
		"cores": func(v float64) string { return quantity(v, "cores") },
		"bytes": func(v float64) string { return quantity(v, "B") },
		"rate":  func(v float64) string { return quantity(v, "B/s") },
		"time":  func(v float64) string { return quantity(v, "s") },
		"ms":    func(v float64) string { return quantity(v, "ms") },
		"floor": math.Floor,
		"ceil":  math.Ceil,
		"add":   func(a, b float64) float64 { return a + b },
		"mul": func(all ...float64) float64 {
			v := 1.0
			for _, f := range all {
				v *= f
			}
			return v
		},
		"div":      func(a, b float64) float64 { return a / b },
		"quick":    d.quick,
		"pictures": d.pictures,
		"date":     func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
	}).Funcs(funcs)
	var b strings.Builder
	t.Funcs(template.FuncMap{"sorted": func(name string) (string, error) {
		var rows strings.Builder
		err := t.ExecuteTemplate(&rows, name, data)
		return sortedByCars(rows.String()), err
	}})
	if _, err := t.ParseFS(pages, name); err != nil {
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
	i := slices.IndexFunc(d.Figures, func(f Figure) bool {
		return f.Part == part && f.Subject == subject &&
			f.Name == name
	})
	if i < 0 {
		return nil
	}
	return &d.Figures[i]
}

// figures returns the figures for which wanted returns true.
func (d *Document) figures(wanted func(*Figure) bool) (some []*Figure) {
	for i := range d.Figures {
		if wanted(&d.Figures[i]) {
			some = append(some, &d.Figures[i])
		}
	}
	return some
}

// aimsMet returns the number of the page's aims that were met and the number of all its aims. It
// returns nil if there are no aims.
func (d *Document) aimsMet() *struct{ Met, All int } {
	var n struct{ Met, All int }
	for _, f := range d.figures(func(f *Figure) bool { return f.Part != scalePart && f.Met != nil }) {
		n.All++
		if *f.Met {
			n.Met++
		}
	}
	if n.All == 0 {
		return nil
	}
	return &n
}

// quick returns a warning if a part's figures are from a quick run.
func (d *Document) quick(part string) string {
	if d.run(part).Quick {
		return "**These figures are from a quick run and rough.**\n\n"
	}
	return ""
}

// pictures returns the Markdown of the plots of a part.
func (d *Document) pictures(part string) string {
	var b strings.Builder
	for _, p := range d.Plots {
		if p.Part == part {
			fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", p.Title, plotDir, p.File)
		}
	}
	return b.String()
}

// machines returns a table of the machines and the parts that were measured on each.
func (d *Document) machines() string {
	by := map[string][]string{}
	var machines []string
	for _, r := range d.Runs {
		if r.Part == scalePart {
			continue // it has its own page
		}
		line := fmt.Sprintf("%s, version %s", r.Machine, r.Version)
		if by[line] == nil {
			machines = append(machines, line)
		}
		by[line] = append(by[line], fmt.Sprintf("%s (%s, %s, %s)", r.Part, r.At.UTC().Format(time.DateOnly),
			plural(r.Rounds, "round"), r.Took.Round(time.Second)))
	}
	var b strings.Builder
	b.WriteString("| measured on | parts |\n|---|---|\n")
	for _, m := range machines {
		fmt.Fprintf(&b, "| %s | %s |\n", m, strings.Join(by[m], ", "))
	}
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// aims returns a table of the figures that have an aim.
func aims(figures []*Figure) string {
	var b strings.Builder
	for _, f := range figures {
		if f.Aim == "" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("| figure | subject | aim | measured | met |\n|---|---|---:|---:|---|\n")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", f.Name, f.Subject, f.Aim, f.Text(), f.met())
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

func (f *Figure) met() string {
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

// maxColumns is the maximum number of figures that a table has side by side.
const maxColumns = 5

// tables returns tables of figures. Figures that were measured for the same subjects are columns of
// one table.
func tables(figures []*Figure) string {
	var b strings.Builder
	type column struct {
		name string
		by   map[string]*Figure // by subject
		rows []string
	}
	var columns []*column
	for _, f := range figures {
		name := strings.TrimSuffix(f.Name+", "+f.Unit, ", ")
		j := slices.IndexFunc(columns, func(c *column) bool { return c.name == name && c.by[f.Subject] == nil })
		if j < 0 {
			j = len(columns)
			columns = append(columns, &column{name: name, by: map[string]*Figure{}})
		}
		columns[j].by[f.Subject] = f
		columns[j].rows = append(columns[j].rows, f.Subject)
	}
	var shown []*Figure  // in tables of several subjects
	var lonely []*Figure // of one subject only; without those that the table of aims shows completely
	for len(columns) > 0 {
		first := columns[0]
		var together, rest []*column
		for _, c := range columns {
			if len(together) < maxColumns && slices.Equal(c.rows, first.rows) {
				together = append(together, c)
			} else {
				rest = append(rest, c)
			}
		}
		columns = rest
		if len(first.rows) == 1 {
			for _, c := range together {
				if f := c.by[first.rows[0]]; f.Aim == "" || f.Remark != "" {
					lonely = append(lonely, f)
				}
			}
			continue
		}
		b.WriteString("| |")
		for _, c := range together {
			fmt.Fprintf(&b, " %s |", c.name)
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(together)) + "\n")
		for _, subject := range first.rows {
			fmt.Fprintf(&b, "| %s |", subject)
			for _, c := range together {
				fmt.Fprintf(&b, " %s |", c.by[subject].Number())
				shown = append(shown, c.by[subject])
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	b.WriteString(meanings(shown))
	if len(lonely) > 0 {
		b.WriteString(list(lonely))
	}
	return b.String()
}

// meanings returns a table with the remarks of figures. A figure has one row if it has one remark;
// otherwise it has one row for each remark, with the subjects of that remark.
func meanings(figures []*Figure) string {
	type meaning struct{ name, remark string }
	var all []meaning
	subjects, remarks := make(map[meaning][]string), make(map[string]int)
	for _, f := range figures {
		m := meaning{f.Name, f.Remark}
		if subjects[m] == nil {
			all = append(all, m)
			remarks[f.Name]++
		}
		subjects[m] = append(subjects[m], f.Subject)
	}
	all = slices.DeleteFunc(all, func(m meaning) bool { return m.remark == "" })
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| figure | meaning |\n|---|---|\n")
	for _, m := range all {
		of := ""
		if remarks[m.name] > 1 {
			of = " (" + strings.Join(subjects[m], "; ") + ")"
		}
		fmt.Fprintf(&b, "| %s%s | %s |\n", m.name, of, m.remark)
	}
	b.WriteByte('\n')
	return b.String()
}

// list returns a table with one figure per row, and its remark.
func list(figures []*Figure) string {
	var b strings.Builder
	b.WriteString("| subject | figure | measured | meaning |\n|---|---|---:|---|\n")
	for _, f := range figures {
		remark := f.Remark
		if f.Aim != "" {
			remark = strings.TrimPrefix(remark+"; ", "; ") + "aim " + f.Aim + ": " + f.met()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Subject, f.Name, f.Text(), remark)
	}
	b.WriteByte('\n')
	return b.String()
}
