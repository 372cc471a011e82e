// Package format reads the messages of other people's senders. A mapping, a YAML document that is
// compiled once, says where the vehicle, the time and the signals are. It has no expressions, so
// the cost of a message is limited. The package must never store or send a sample, and its
// errors never repeat a message.
package format

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const (
	maxText    = 16 << 10 // bytes
	maxSignals = 64
	maxPaths   = 256
	maxTable   = 500
)

type mapping struct {
	About  string       `yaml:"about"`
	From   string       `yaml:"from"`
	Topics []string     `yaml:"topics"` // filters; if none, every topic
	Topic  list[string] `yaml:"topic"`  // where a message that came without a topic has one
	VID    struct {
		Path  list[string]      `yaml:"path"`
		Topic []int             `yaml:"topic"` // levels, from 1
		Clean string            `yaml:"clean"` // strip or hash
		Table map[string]string `yaml:"table"`
	} `yaml:"vid"`
	Time struct {
		Path   list[string] `yaml:"path"`
		Unit   string       `yaml:"unit"`
		Layout string       `yaml:"layout"`
	} `yaml:"time"`
	Each  string      `yaml:"each"`
	Skip  []condition `yaml:"skip"`
	Names struct {
		Path  list[string] `yaml:"path"`
		Topic int          `yaml:"topic"`
	} `yaml:"name"`
	Value   list[string]                 `yaml:"value"`
	Under   list[string]                 `yaml:"under"` // objects with members named as in VSS
	Signals map[string]list[*signalText] `yaml:"signals"`
	Reply   string                       `yaml:"reply"`
	Log     Log                          `yaml:"log"`
}

type Log struct {
	Name   string            `yaml:"name"`  // if empty, the preset's
	Needs  []string          `yaml:"needs"` // columns that identify the header
	Header string            `yaml:"header"`
	Clock  string            `yaml:"clock"`
	Rows   string            `yaml:"rows"`
	Label  string            `yaml:"label"`
	Labels map[string]string `yaml:"labels"` // to normal, slow or jam
	Unit   string            `yaml:"unit"`   // column with units
}

type condition struct {
	slots   []int
	Path    list[string] `yaml:"path"`
	Is      []string     `yaml:"is"`
	Not     []string     `yaml:"not"`
	Missing bool         `yaml:"missing"`
}

type signalText struct {
	Path   list[string]      `yaml:"path"`
	Name   string            `yaml:"name"`
	Unit   string            `yaml:"unit"`
	Factor float64           `yaml:"factor"`
	Values map[string]string `yaml:"values"`
}

func (t *signalText) FactorTo(s signal.Signal) (float64, error) {
	factor, err := Factor(s, t.Unit)
	return cmp.Or(t.Factor, factor), err
}

// UnmarshalYAML looks for unknown members, which a yaml.Decoder does not do below a custom method.
func (t *signalText) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if k := n.Content[i]; !slices.Contains([]string{"path", "name", "unit", "factor", "values"}, k.Value) {
			return fmt.Errorf("line %d: a signal has no member of this name", k.Line)
		}
	}
	type plain signalText
	return n.Decode((*plain)(t))
}

// A list of one item may be written as the item. Of paths, the first that a message has is used.
type list[T any] []T

func (l *list[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		n = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}}
	}
	return n.Decode((*[]T)(l))
}

// Format is a compiled mapping; nil is the service's own format.
type Format struct {
	mapping
	AllTopics string
	name      string
	text      string
	next      *Format

	topics  [][]string
	topic   []int // slots, indexes in Decoder.values, of paths; so are the next three
	vid     []int
	time    []int
	names   []int
	signals []mapped
	byName  map[string][]int // indexes in signals, by the text of Names that selects them
	root    *node
	element *node // paths below each item of the list, or nil
	slots   int
	columns map[string][]int // slots by name
}

type mapped struct {
	signal.Signal
	slots  []int
	factor float64
	values map[string]string
}

func (f *Format) String() string {
	if f == nil {
		return ""
	}
	return cmp.Or(f.name, f.text)
}

func (f *Format) Name() string {
	if f == nil {
		return "own"
	}
	return cmp.Or(f.name, "mapping")
}

// IsForm reports whether messages may come as the query of a GET request.
func (f *Format) IsForm() bool { return f != nil && f.From == "form" }

//go:embed presets
var presets embed.FS

func Presets() (names, abouts []string) {
	files, _ := presets.ReadDir("presets")
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".yaml")
		f, _ := Parse(name)
		names, abouts = append(names, name), append(abouts, f.About)
	}
	return names, abouts
}

func Text(name string) (string, error) {
	b, err := presets.ReadFile("presets/" + name + ".yaml")
	if err != nil {
		return "", errors.New("there is no preset of this name: carstate format list shows them")
	}
	return string(b), nil
}

var presetName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// Parse takes the name of a preset, YAML, or "" for the own format.
func Parse(text string) (*Format, error) {
	switch {
	case text == "":
		return nil, nil
	case presetName.MatchString(text):
		yaml, err := Text(text)
		if err != nil {
			return nil, err
		}
		f, _ := parse(yaml) // a test parses all
		f.name = text
		return f, nil
	}
	return parse(text)
}

func parse(text string) (*Format, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("a mapping has at most %d bytes", maxText)
	}
	dec, trees := yaml.NewDecoder(strings.NewReader(text)), yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	var first *Format
	next := &first
	for n := 1; ; n++ {
		f := new(Format)
		var tree yaml.Node
		if _ = trees.Decode(&tree); hasAlias(&tree) { // dec returns the same error
			return nil, errors.New(errAlias) // a short text could become long
		}
		switch err := dec.Decode(&f.mapping); {
		case err == io.EOF && first == nil:
			return nil, errors.New("the mapping is empty")
		case err == io.EOF:
			first.text = text
			return first, nil
		case err != nil:
			return nil, readable(err)
		}
		if err := f.compile(); err != nil && n > 1 {
			return nil, fmt.Errorf("document %d: %w", n, err)
		} else if err != nil {
			return nil, err
		}
		*next = f
		first.AllTopics = strings.Trim(first.AllTopics+", "+strings.Join(f.Topics, ", "), ", ")
		next = &f.next
	}
}

// The errors of YAML repeat keys and values, and name Go types.
var yamlErrors = []struct {
	is   *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`^line (\d+): (did not find expected (<|node|key|'-'|',')|found undefined)`), "after line $1: $2"},
	{regexp.MustCompile(`^(block|could|did|found|mapping (keys|values)) `), "line 1: $1 "},
	{regexp.MustCompile(`field ([a-z]{1,20}) not found in type .*`), "a mapping has no $1 here"},
	{regexp.MustCompile(`(?s)field .* not found in type .*`), "a mapping has no such name here"},
	{regexp.MustCompile(`(?s)cannot (unmarshal|decode) .*`), "a value of another type is needed"},
	{regexp.MustCompile(`(?s)mapping key .*`), "a name is here twice"},
	{regexp.MustCompile(`(?s)(unknown )?anchor .*`), errAlias},
}

const errAlias = "a mapping has no aliases: write the value again"

func readable(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if t, ok := errors.AsType[*yaml.TypeError](err); ok {
		text = t.Errors[0]
	}
	for _, e := range yamlErrors {
		text = e.is.ReplaceAllString(text, e.text)
	}
	return errors.New(text)
}

func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

func (f *Format) compile() error {
	m := &f.mapping
	f.root, f.columns, f.byName = new(node), make(map[string][]int), make(map[string][]int)
	m.From = cmp.Or(m.From, "json")
	if err := f.check(); err != nil {
		return err
	}
	for _, t := range m.Topics {
		f.topics = append(f.topics, strings.Split(t, "/"))
	}
	if m.Each != "" {
		text, ok := strings.CutSuffix(m.Each, "[*]")
		steps, relative, err := parsePath(text)
		if !ok || err != nil || m.From != "json" || relative {
			return errors.New("each: must be the path of a list in JSON, such as $.data[*]")
		}
		// Items of $[*] need no element: document reads each as a message.
		if len(steps) > 0 {
			f.element = new(node)
			f.root.add(steps, 0)
			f.slots = 1
		}
	}
	var err error
	slotsOf := func(what string, paths list[string]) (slots []int) {
		for _, p := range paths {
			if e := f.slot(p); e != nil && err == nil {
				err = fmt.Errorf("%s: %w", what, e)
			}
			slots = append(slots, f.slots-1)
		}
		return slots
	}
	f.topic = slotsOf("topic", m.Topic)
	f.vid = slotsOf("vid", m.VID.Path)
	f.time = slotsOf("time", m.Time.Path)
	f.names = slotsOf("name", m.Names.Path)
	for i := range m.Skip {
		c := &m.Skip[i]
		c.slots = slotsOf("skip", c.Path)
		if len(c.Path) == 0 || !c.Missing && len(c.Is)+len(c.Not) == 0 {
			return errors.New("skip: each condition needs a path, and is, not or missing")
		}
	}
	ofSignals := f.compileSignals(slotsOf)
	return cmp.Or(err, ofSignals)
}

func (f *Format) named() bool { return f.names != nil || f.Names.Topic > 0 }

func (f *Format) check() error {
	m := &f.mapping
	ids := make(map[string]bool)
	for _, id := range m.VID.Table {
		if _, err := vehicle.ParseReportingID(id); err != nil {
			return fmt.Errorf("vid: in the table, %w", err)
		}
		ids[id] = true
	}
	wrongLevel := func(n int) bool { return n < 1 || n > 32 }
	_, hasUnit := timeUnits[m.Time.Unit]
	switch {
	case !slices.Contains([]string{"json", "form", "value", "csv"}, m.From):
		return errors.New("from: must be json, form, value or csv")
	case !slices.Contains([]string{"", "strip", "hash"}, m.VID.Clean):
		return errors.New("vid: clean must be strip or hash")
	case len(m.VID.Table) > maxTable:
		return fmt.Errorf("vid: a table has at most %d entries", maxTable)
	case len(ids) < len(m.VID.Table):
		return errors.New("vid: the table has a vid twice, so two senders would be one car: give each its own")
	case len(m.VID.Topic) > 8 || slices.ContainsFunc(m.VID.Topic, wrongLevel) || m.Names.Topic != 0 && wrongLevel(m.Names.Topic):
		return errors.New("topic: levels are numbered from 1 to 32")
	case !hasUnit:
		return errors.New("time: unit must be rfc3339, s, ms, us, ns, time of day or arrival; " +
			"without one it is RFC 3339 or milliseconds")
	case !slices.Contains([]string{"", "plain", "absolute", "daily", "run time", "sessions"}, m.Log.Clock),
		!slices.Contains([]string{"", "every cell", "round robin", "snapshots"}, m.Log.Rows):
		return errors.New("log: clock is plain, absolute, daily, run time or sessions, " +
			"and rows are every cell, round robin or snapshots")
	case m.Time.Path == nil && m.Time.Unit != "arrival" && m.Log.Clock != "sessions":
		return errors.New("time: give its path, or unit: arrival")
	case len(m.Reply) > 100:
		return errors.New("reply: has at most 100 bytes")
	}
	return nil
}

func (f *Format) compileSignals(slotsOf func(string, list[string]) []int) error {
	m := &f.mapping
	if len(m.Signals) > maxSignals {
		return fmt.Errorf("signals: at most %d", maxSignals)
	}
	if len(m.Signals) == 0 && (f.named() || m.Under != nil) {
		m.Signals = make(map[string]list[*signalText])
		for _, name := range signal.Names() {
			var s signalText
			if f.named() {
				s.Name = name
			}
			for _, u := range m.Under {
				s.Path = append(s.Path, u+"['"+name+"']")
			}
			m.Signals[name] = list[*signalText]{&s}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Signals)) {
		s, ok := signal.ByName(name)
		if !ok {
			return fmt.Errorf("signals: %.60q is not a signal that carstate uses (docs/telemetry.md)", name)
		}
		for _, p := range m.Signals[name] {
			place := *cmp.Or(p, new(signalText)) // null
			if f.named() && place.Path == nil {
				place.Path = m.Value
			}
			if len(place.Path) == 0 && m.From == "value" {
				place.Path = list[string]{"$"}
			}
			factor, err := place.FactorTo(s)
			values := make(map[string]string, len(place.Values))
			for from, to := range place.Values {
				values[canonical(from)] = to
			}
			switch {
			case len(place.Path) == 0 || f.named() != (place.Name != ""):
				return fmt.Errorf("signals: %s needs a path, and a name if the mapping has name", name)
			case err != nil:
				return fmt.Errorf("signals: %w", err)
			case len(place.Values) > maxTable:
				return fmt.Errorf("signals: a table has at most %d entries", maxTable)
			case math.IsNaN(factor) || math.IsInf(factor, 0):
				return fmt.Errorf("signals: the factor of %s must be a finite number", name)
			case len(values) < len(place.Values):
				return fmt.Errorf("signals: the values of %s have the same number twice", name)
			}
			f.signals = append(f.signals, mapped{s, slotsOf("signals: "+name, place.Path), factor, values})
			f.byName[place.Name] = append(f.byName[place.Name], len(f.signals)-1)
		}
	}
	if len(f.signals) == 0 {
		return errors.New("signals: name at least one, such as Vehicle.Speed: {path: $.speed, unit: mph}")
	}
	return nil
}

func (f *Format) slot(text string) error {
	n := f.slots
	if f.slots++; f.slots > maxPaths {
		return fmt.Errorf("a mapping has at most %d paths", maxPaths)
	}
	if f.From == "form" || f.From == "csv" {
		f.columns[text] = append(f.columns[text], n)
		return nil
	}
	steps, relative, err := parsePath(text)
	switch {
	case err != nil:
		return err
	case relative && f.element != nil:
		f.element.add(steps, n)
	case relative && f.mapping.Each == "":
		return errors.New("a path that begins with @ is below an item of each, which is missing")
	default:
		f.root.add(steps, n)
	}
	return nil
}
