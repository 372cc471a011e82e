package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Run is when and where a part was measured.
type Run struct {
	Part    string        `json:"part"`
	Machine string        `json:"machine"`
	Version string        `json:"version"` // of the code
	At      time.Time     `json:"at"`
	Took    time.Duration `json:"took_ns"`
	Rounds  int           `json:"rounds"`
	Quick   bool          `json:"quick,omitempty"`
}

// Document is all that is known: what the last run of every part found.
type Document struct {
	Runs    []Run    `json:"runs"`
	Figures []Figure `json:"figures"`
	Plots   []Plot   `json:"plots"`
}

// The files that the document consists of, in the directory of docs.
const (
	pageFile    = "performance.md"
	plotDir     = "performance"
	resultsFile = "performance/results.json"
)

// Load reads what is known from a directory of docs: nothing, if there is no file.
func Load(docs string) (d Document, err error) {
	err = ReadResults(filepath.Join(docs, resultsFile), &d)
	return d, err
}

// ReadResults reads a file of results into what they are kept as, and leaves that as
// it is if there is no file.
func ReadResults(file string, into any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("what is known from before cannot be read: %w", err)
	}
	return nil
}

// Replace takes in what a run of a part found, in place of what an earlier run did.
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

// Save writes the results, the page and the plots into a directory of docs.
func (d *Document) Save(docs string) error {
	if err := os.MkdirAll(filepath.Join(docs, plotDir), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(docs, resultsFile), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(docs, pageFile), []byte(d.page()), 0o644),
	)
	if page := d.scalePage(); page != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(docs, scalePageFile), []byte(page), 0o644))
	}
	for _, p := range d.Plots {
		err = errors.Join(err, os.WriteFile(filepath.Join(docs, plotDir, p.File+".svg"), []byte(p.svg()), 0o644))
	}
	return err
}

// page is the document for people.
func (d *Document) page() string {
	var b strings.Builder
	b.WriteString("# What it costs\n\n<!-- Written by `make bench` from performance/results.json. Do not edit: change bench/report. -->\n\n")
	b.WriteString(preface)
	d.writeMachines(&b)
	for _, part := range partsInOrder {
		i := slices.IndexFunc(d.Runs, func(r Run) bool { return r.Part == part.name })
		if i < 0 {
			continue
		}
		run := d.Runs[i]
		fmt.Fprintf(&b, "\n## %s\n\n", part.title)
		if part.asked != "" {
			fmt.Fprintf(&b, "**Asked.** %s\n\n", part.asked)
		}
		if run.Quick {
			b.WriteString("**These figures are from a quick run and rough.**\n\n")
		}
		d.writeAims(&b, part.name)
		d.writeTables(&b, part.name)
		for _, p := range d.Plots {
			if p.Part == part.name {
				fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", p.Title, plotDir, p.File)
			}
		}
		if part.how != "" {
			fmt.Fprintf(&b, "**How it was measured.** %s\n\n", part.how)
		}
		if part.tried != "" {
			fmt.Fprintf(&b, "**What was done and tried.** %s\n", part.tried)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// writeMachines says where each part was measured, once where that is the same.
func (d *Document) writeMachines(b *strings.Builder) {
	by := map[string][]string{}
	var machines []string
	for _, r := range d.Runs {
		if r.Part == Scale {
			continue // it has a page of its own
		}
		line := fmt.Sprintf("%s, version %s", r.Machine, r.Version)
		if by[line] == nil {
			machines = append(machines, line)
		}
		by[line] = append(by[line], fmt.Sprintf("%s (%s, %s, %s)", r.Part, r.At.UTC().Format(time.DateOnly), plural(r.Rounds, "round"), r.Took.Round(time.Second)))
	}
	b.WriteString("| measured on | parts |\n|---|---|\n")
	for _, m := range machines {
		fmt.Fprintf(b, "| %s | %s |\n", m, strings.Join(by[m], ", "))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// writeAims is the table of what was hoped for.
func (d *Document) writeAims(b *strings.Builder, part string) {
	some := false
	for _, f := range d.Figures {
		if f.Part != part || f.Aim == "" {
			continue
		}
		if !some {
			b.WriteString("| aim | who | wanted | measured | met |\n|---|---|---:|---:|---|\n")
			some = true
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", f.Name, f.Subject, f.Aim, f.text(), f.met())
	}
	if some {
		b.WriteByte('\n')
	}
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

// maxColumns is how many figures stand side by side.
const maxColumns = 5

// writeTables shows all figures of a part: figures that the same subjects have go
// side by side.
func (d *Document) writeTables(b *strings.Builder, part string) {
	type column struct {
		name string
		by   map[string]*Figure // by subject
		rows []string
	}
	var columns []*column
	for i := range d.Figures {
		f := &d.Figures[i]
		if f.Part != part {
			continue
		}
		name := f.Name + ", " + f.Unit
		j := slices.IndexFunc(columns, func(c *column) bool { return c.name == name && c.by[f.Subject] == nil })
		if j < 0 {
			j = len(columns)
			columns = append(columns, &column{name: name, by: map[string]*Figure{}})
		}
		columns[j].by[f.Subject] = f
		columns[j].rows = append(columns[j].rows, f.Subject)
	}
	var lonely []*Figure // one subject only, and an aim: shown already
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
			fmt.Fprintf(b, " %s |", c.name)
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(together)) + "\n")
		var remarks []string
		for _, subject := range first.rows {
			fmt.Fprintf(b, "| %s |", subject)
			for _, c := range together {
				f := c.by[subject]
				fmt.Fprintf(b, " %s |", f.number())
				if remark := c.name + ": " + f.Remark; f.Remark != "" && !slices.Contains(remarks, remark) {
					remarks = append(remarks, remark)
				}
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
		for _, r := range remarks {
			fmt.Fprintf(b, "- %s\n", r)
		}
		if len(remarks) > 0 {
			b.WriteByte('\n')
		}
	}
	if len(lonely) == 0 {
		return
	}
	b.WriteString("| who | what | measured | remark |\n|---|---|---:|---|\n")
	for _, f := range lonely {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", f.Subject, f.Name, f.text(), f.Remark)
	}
	b.WriteByte('\n')
}
