package drivelog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
)

// maxColumns is what a readSet holds.
const maxColumns = 64

// help ends errors, which never repeat the file.
const help = "; carstate format list shows the formats, carstate format show NAME a mapping to start from, " +
	"and --format-file FILE reads one of your own"

var errUnknown = errors.New("the first line is not the header of a known log" + help)

type logger struct {
	*format.Format
	name   string
	labels map[string]driving.State
	clock  func(*table, *account) []time.Duration
	read   func(*table, []time.Duration) []readSet
}

var clocks = map[string]func(*table, *account) []time.Duration{
	"": plainClock, "plain": plainClock, "absolute": plainClock, "daily": plainClock, "run time": runTimeClock, "sessions": sessionClock,
}

var readers = map[string]func(*table, []time.Duration) []readSet{
	"": everyCell, "every cell": everyCell, "round robin": roundRobin, "snapshots": snapshots,
}

var states = map[string]driving.State{
	"normal": driving.Normal, "slow": driving.Slow, "jam": driving.Jam,
}

func newLogger(f *format.Format) (*logger, error) {
	l := &logger{f, cmp.Or(f.Log.Name, f.Name()), make(map[string]driving.State), clocks[f.Log.Clock],
		readers[f.Log.Rows]}
	for text, name := range f.Log.Labels {
		if l.labels[text] = states[name]; l.labels[text] == 0 {
			return nil, errors.New("log: a label is normal, slow or jam")
		}
	}
	return l, nil
}

// loggers has the formats with the most particular columns first.
var loggers = sync.OnceValue(func() (all []*logger) {
	names, _ := format.Presets()
	for _, name := range names {
		f, _ := format.Parse(name) // a test parses all presets
		if l, err := newLogger(f); err == nil && f.From == "csv" && f.Log.Needs != nil {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b *logger) int { return len(b.Log.Needs) - len(a.Log.Needs) })
	return all
})

func (l *logger) lacks(h header) (names []string) {
	need := func(paths ...string) {
		if len(paths) > 0 && h.find(paths) < 0 {
			names = append(names, paths[0])
		}
	}
	for _, n := range l.Log.Needs {
		need(n)
	}
	need(l.Time.Path...)
	need(l.Names.Path...)
	return names
}

// The error of findFormat names the columns that the most similar format needs and h lacks.
func findFormat(h header) (*logger, error) {
	var nearest *logger
	best := 0
	for _, l := range loggers() {
		if l.lacks(h) == nil {
			return l, nil
		}
		n := 0
		for _, places := range l.Signals {
			for _, p := range places {
				if h.find(p.Path) >= 0 {
					n++
				}
			}
		}
		if n > best {
			best, nearest = n, l
		}
	}
	if nearest == nil {
		return nil, errUnknown
	}
	return nil, fmt.Errorf("%w (the nearest, %s, also needs the column %s)", errUnknown, nearest.name,
		strings.Join(nearest.lacks(h), ", "))
}

// A cell of a header has up to two names: the whole text, and that before a unit in brackets, such
// as "speed (obd)" for "Speed (OBD)(km/h)".
type header []headerCell

type headerCell struct{ whole, name, unit string }

func parseHeaderCell(cell string) (c headerCell) {
	c.whole = strings.ToLower(trimCell(cell))
	c.name = c.whole
	for _, brackets := range []string{"[]", "()"} {
		inside, ok := strings.CutSuffix(c.whole, brackets[1:])
		if i := strings.LastIndex(inside, brackets[:1]); ok && i >= 0 {
			c.name, c.unit = strings.TrimSpace(inside[:i]), strings.TrimSpace(inside[i+1:])
		}
	}
	return c
}

func (h header) find(names []string) int {
	for _, name := range names {
		if name = strings.ToLower(name); name == "" {
			continue
		}
		i := slices.IndexFunc(h, func(c headerCell) bool { return c.whole == name })
		if i < 0 {
			i = slices.IndexFunc(h, func(c headerCell) bool { return c.name == name })
		}
		if i >= 0 {
			return i
		}
	}
	return -1
}

func trimCell(s string) string { return strings.Trim(s, " \t\r\"") }

// A unit in the header takes precedence over that of the mapping.
func (l *logger) columnsOf(h header) (map[int]column, error) {
	columns := make(map[int]column)
	for _, name := range slices.Sorted(maps.Keys(l.Signals)) {
		for _, p := range l.Signals[name] {
			s, _ := signal.ByName(name) // Parse has checked it
			i := h.find(p.Path)
			if i < 0 {
				continue
			}
			factor, err := p.FactorTo(s)
			if unit := h[i].unit; unit != "" {
				if h[i].whole == strings.ToLower(p.Path[0]) {
					unit = p.Unit
				}
				factor, err = format.Factor(s, unit)
			}
			if err != nil {
				return nil, fmt.Errorf("in the header, %w%s", err, help)
			}
			if _, taken := columns[i]; !taken {
				columns[i] = column{s, true, factor, p.Values}
			}
			break
		}
	}
	return columns, nil
}
