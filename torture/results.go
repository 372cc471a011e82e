package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"example.org/carstate/bench/report"
	"example.org/carstate/torture/row"
)

type done struct {
	Row      string        `json:"row"`
	Machine  string        `json:"machine"`
	Version  string        `json:"version"` // of carstate
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took_ns"`
	Seed     uint64        `json:"seed"`
	Count    int           `json:"count"`
	Outcome  row.Outcome   `json:"outcome"`
	Controls []control     `json:"controls,omitempty"`
}

type control struct {
	Defect string        `json:"defect"`
	Caught bool          `json:"caught"`
	By     string        `json:"by,omitempty"` // the finding that caught it, or else the first one
	Took   time.Duration `json:"took_ns"`
}

type results struct {
	Rows []done `json:"rows"`
	file string
}

func load(docs string) (r results, err error) {
	r.file = filepath.Join(docs, "reliability.json")
	err = report.ReadResults(r.file, &r)
	return r, err
}

func (r *results) save(d done) error {
	r.Rows = append(slices.DeleteFunc(r.Rows, func(o done) bool { return o.Row == d.Row }), d)
	return report.WriteResults(r.file, r)
}

func (d *done) caught() (n int) {
	for _, c := range d.Controls {
		if c.Caught {
			n++
		}
	}
	return n
}

func (d *done) print(w io.Writer, unit string) {
	o := &d.Outcome
	fmt.Fprintf(w, "%s, seed %d: %d %s in %s, offered %d, acknowledged %d, lost %d, wrong %d; controls caught %d of %d\n",
		d.Row, d.Seed, d.Count, unit, d.Took.Round(time.Second), o.Offered, o.Acknowledged, o.Lost, o.Wrong, d.caught(),
		len(d.Controls))
	for _, f := range o.Figures {
		fmt.Fprintf(w, "  %s: %.6g %s %s\n", f.Name, f.Value, f.Unit, f.Aim)
	}
	for _, f := range o.Findings {
		fmt.Fprintln(w, "  "+f)
	}
	for _, c := range d.Controls {
		fmt.Fprintf(w, "  with %s, caught: %t: %s\n", c.Defect, c.Caught, c.By)
	}
}
