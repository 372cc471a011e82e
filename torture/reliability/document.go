// Package reliability keeps what the torture found and writes it for people. It
// breaks nothing itself.
package reliability

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"carstate/bench/report"
	"carstate/torture/row"
)

// Done is one row as it was last done.
type Done struct {
	Row      string        `json:"row"`
	Machine  string        `json:"machine"`
	Version  string        `json:"version"` // of the code
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took_ns"` // without the controls
	Seed     uint64        `json:"seed"`
	Count    int           `json:"count"`
	Outcome  row.Outcome   `json:"outcome"`
	Controls []Control     `json:"controls,omitempty"`
}

// Control is what a row made of a broken build.
type Control struct {
	Defect string        `json:"defect"`
	Caught bool          `json:"caught"`
	By     string        `json:"by,omitempty"` // the finding that caught it, or else the first one
	Took   time.Duration `json:"took_ns"`
}

// Document is what the last run of every row found.
type Document struct {
	Rows  []Done `json:"rows"`
	Whole *Whole `json:"whole,omitempty"` // nil: there was none yet
}

// The files that the document consists of, in the directory of docs.
const (
	pageFile    = "reliability.md"
	resultsFile = "reliability.json"
)

// Load reads what is known from a directory of docs: nothing, if there is no file.
func Load(docs string) (d Document, err error) {
	err = report.ReadResults(filepath.Join(docs, resultsFile), &d)
	return d, err
}

// Replace takes in how a row was done, in place of an earlier time.
func (d *Document) Replace(done Done) {
	d.Rows = append(slices.DeleteFunc(d.Rows, func(o Done) bool { return o.Row == done.Row }), done)
}

// Save writes the results and the page into a directory of docs. rows are all
// there are, in the order of the page.
func (d *Document) Save(docs string, rows []row.Row) error {
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(docs, resultsFile), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(docs, pageFile), []byte(d.page(rows)), 0o644),
	)
}

// Line is one row for the terminal.
func (o *Done) Line() string {
	line := fmt.Sprintf("%-10s seed %d: %d done in %s, offered %d, acknowledged %d, lost %d, wrong %d; controls caught %s",
		o.Row, o.Seed, o.Count, o.Took.Round(time.Second), o.Outcome.Offered, o.Outcome.Acknowledged, o.Outcome.Lost, o.Outcome.Wrong, o.caught())
	if o.Outcome.Undone != "" {
		line += "; " + o.Outcome.Undone
	}
	return line
}

// seen is how many of its controls the row caught.
func (o *Done) seen() (n int) {
	for _, c := range o.Controls {
		if c.Caught {
			n++
		}
	}
	return n
}

func (o *Done) caught() string { return fmt.Sprintf("%d of %d", o.seen(), len(o.Controls)) }

const preface = `What happens to carstate when it is killed, cut off, lied to and starved. Every row breaks
something on purpose, with a seed that makes it repeatable, and counts what was offered, what
was acknowledged, what of that was lost, and what was answered wrongly. A row is believed only
because it sees a build that was broken on purpose: its controls. A control is caught by a
finding that its defect must cause, and by no other. All figures come from
` + "[`reliability.json`](reliability.json)" + `, which ` + "`make torture`" + ` writes.

` + "```" + `
make torture                                          # all rows but the soak; 20 minutes on two cores
make torture TORTUREFLAGS='-rows kill -count kill=1000'
make torture TORTUREFLAGS='-rows power -seed 4711'    # again as it was
make torture TORTUREFLAGS='-long'                     # more of the same rows; hours
make torture TORTUREFLAGS='-rows soak -count soak=40' # the soak, which runs only if it is named: so many minutes
` + "```" + `

`

// page is the document for people.
func (d *Document) page(rows []row.Row) string {
	var b strings.Builder
	b.WriteString("# What breaks, and what holds\n\n<!-- Written by `make torture` from reliability.json. Do not edit: change torture/. -->\n\n")
	b.WriteString(preface)
	if d.Whole != nil {
		fmt.Fprintf(&b, "Last whole run: %s. Rows that were done again since show that.\n\n", d.Whole)
	}
	b.WriteString("| | row | done | offered | acknowledged | lost | wrong | controls caught |\n|---:|---|---|---:|---:|---:|---:|---:|\n")
	for _, r := range rows {
		o := d.find(r.Name)
		if o == nil {
			fmt.Fprintf(&b, "| %d | [%s](#%s) | not yet | | | | | |\n", r.Number, r.Title, anchor(r))
			continue
		}
		undone := ""
		if o.Outcome.Undone != "" {
			undone = "**not done to the end**: "
		}
		fmt.Fprintf(&b, "| %d | [%s](#%s) | %s%s %s | %s | %s | %d | %d | %s |\n", r.Number, r.Title, anchor(r), undone, thousands(int64(o.Count)), r.Counts,
			thousands(o.Outcome.Offered), thousands(o.Outcome.Acknowledged), o.Outcome.Lost, o.Outcome.Wrong, o.caught())
	}
	for _, r := range rows {
		d.section(&b, r)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// anchor is the fragment of a row's heading.
func anchor(r row.Row) string {
	return fmt.Sprintf("%d-%s", r.Number, strings.ReplaceAll(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == ' ' || c == '-' {
			return c
		}
		return -1
	}, strings.ToLower(r.Title)), " ", "-"))
}

func (d *Document) find(name string) *Done {
	for i := range d.Rows {
		if d.Rows[i].Row == name {
			return &d.Rows[i]
		}
	}
	return nil
}

// section is all about one row.
func (d *Document) section(b *strings.Builder, r row.Row) {
	fmt.Fprintf(b, "\n## %d. %s\n\n**Promised.** %s\n\n**How.** %s\n\n", r.Number, r.Title, r.Promise, r.How)
	o := d.find(r.Name)
	if o == nil {
		b.WriteString("It has not been done yet.\n")
		return
	}
	tried := "Done"
	if o.Outcome.Undone != "" {
		tried = "Tried, and **not done to the end**,"
	}
	fmt.Fprintf(b, "%s %s with seed %d: %s %s in %s. Version %s. %s\n", tried, o.At.Format(time.DateOnly), o.Seed, thousands(int64(o.Count)), r.Counts, o.Took.Round(time.Second), o.Version, o.Machine)
	if len(o.Outcome.Figures) > 0 {
		b.WriteString("\n| figure | measured | wanted | met |\n|---|---:|---:|---|\n")
		for _, f := range o.Outcome.Figures {
			met := ""
			if f.Met != nil {
				met = map[bool]string{true: "yes", false: "**no**"}[*f.Met]
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", f.Name, strings.TrimSpace(number(f.Value)+" "+f.Unit), f.Aim, met)
		}
	}
	if len(o.Outcome.Findings) > 0 {
		b.WriteString("\n**It found:**\n\n")
		for _, f := range o.Outcome.Findings {
			fmt.Fprintf(b, "- %s\n", f)
		}
	}
	if len(r.Controls) > 0 {
		b.WriteString("\n| a build that | caught | by |\n|---|---|---|\n")
		for _, c := range r.Controls {
			caught, by := "not run", ""
			if i := slices.IndexFunc(o.Controls, func(done Control) bool { return done.Defect == c.Defect }); i >= 0 {
				caught, by = "yes", o.Controls[i].By
				if !o.Controls[i].Caught {
					caught, by = "**no**", "found instead: "+cmp.Or(by, "nothing")
				}
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", c.Says, caught, strings.ReplaceAll(by, "|", "\\|"))
		}
	}
	if len(r.Found) > 0 {
		b.WriteString("\n**Found on the way, and mended:**\n\n")
		for _, f := range r.Found {
			fmt.Fprintf(b, "- %s\n", f)
		}
	}
}
