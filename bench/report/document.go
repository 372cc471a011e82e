package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

type Run struct {
	Part    string        `json:"part"`
	Machine string        `json:"machine"`
	Version string        `json:"version"` // of carstate
	At      time.Time     `json:"at"`
	Took    time.Duration `json:"took_ns"`
	Rounds  int           `json:"rounds"`
	Quick   bool          `json:"quick,omitempty"`
}

type Document struct {
	Runs    []Run    `json:"runs"`
	Figures []Figure `json:"figures"`

	file string
}

func Load(docs string) (d Document, err error) {
	d.file = filepath.Join(docs, "performance", "results.json")
	err = ReadResults(d.file, &d)
	return d, err
}

// ReadResults changes nothing if there is no file.
func ReadResults(file string, stored any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, stored)
	}
	if err != nil {
		return fmt.Errorf("cannot read the stored results: %w", err)
	}
	return nil
}

func WriteResults(file string, results any) error {
	text, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, append(text, '\n'), 0o644))
}

func (d *Document) Save(run Run, p *Part) error {
	d.Runs = append(slices.DeleteFunc(d.Runs, func(o Run) bool { return o.Part == run.Part }), run)
	d.Figures = append(slices.DeleteFunc(d.Figures, func(f Figure) bool { return f.Part == run.Part }), p.Figures...)
	return WriteResults(d.file, d)
}

func (p *Part) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range p.Figures {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.Subject, f.Name, f.Text(), f.Aim, f.Verdict())
	}
	return t.Flush()
}
