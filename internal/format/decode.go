package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json/jsontext"
	"errors"
	"net/url"
	"slices"
	"strings"

	"example.org/carstate/internal/jsonscan"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

type Message struct {
	Body    []byte
	Topic   string
	Vehicle vehicle.ID       // of a message that names none
	Now     signal.UnixMilli // time of arrival; 0: not known
}

type Sample struct {
	vehicle.Sample
	Skipped  bool   // by a condition
	External string // the sender's name of the vehicle, if the vid is what strip leaves of it
	Unused   []Unused
	Err      error
}

type Unused struct {
	Signal signal.Signal
	Err    error
}

var (
	ErrSyntax  = errors.New("the message is not valid JSON")
	ErrForm    = errors.New("the message is not a form such as speed=50&lat=52.1")
	ErrTopic   = errors.New("the mapping has no document for this topic")
	ErrNoVID   = errors.New("the message has no vid where the mapping looks for it")
	ErrVID     = errors.New("the vid has other characters than letters and digits: add clean or table to the mapping")
	ErrLongVID = errors.New("the vid is longer than 256 characters")
	ErrTable   = errors.New("the vid is not in the table of the mapping")
	ErrNoTime  = errors.New("the message has no time where the mapping looks for it")
	ErrTime    = errors.New("the time does not have the unit or layout of the mapping")
	ErrNoChars = errors.New("the vid has no letter or digit: give the mapping clean: hash, or a table")
	ErrWork    = errors.New("the message has too many items for its size, or they share too long a value: send fewer")
)

type Decoder struct {
	json    *jsontext.Decoder
	in      bytes.Buffer
	values  []value
	work    int // bytes that spend may still take
	levels  []string
	message Message
	sample  Sample // to which further elements may belong if open
	open    bool
	yield   func(*Sample) bool
}

func NewDecoder() *Decoder { return &Decoder{json: jsontext.NewDecoder(new(bytes.Buffer))} }

func (f *Format) Matches(topic string) bool {
	return f != nil && f.of(strings.Split(topic, "/")) != nil
}

func (f *Format) of(levels []string) *Format {
	for ; f != nil; f = f.next {
		if f.topics == nil || slices.ContainsFunc(f.topics, func(filter []string) bool {
			for i, want := range filter {
				if want == "#" {
					return true
				}
				if i >= len(levels) || want != "+" && want != levels[i] {
					return false
				}
			}
			return len(filter) == len(levels)
		}) {
			return f
		}
	}
	return nil
}

// Decode calls yield with each sample, which is valid until yield returns. After an error in a line,
// Decode goes on with the next line.
func (d *Decoder) Decode(f *Format, m Message, yield func(*Sample) bool) {
	defer func() { d.message, d.yield, d.in = Message{}, nil, bytes.Buffer{} }()
	d.message, d.yield, d.open = m, yield, false
	d.work = 4 * max(1<<20, len(m.Body))
	d.levels = strings.Split(m.Topic, "/")
	if f = f.of(d.levels); f == nil {
		d.fail(ErrTopic)
		return
	}
	d.values = slices.Grow(d.values[:0], f.slots)[:f.slots]
	clear(d.values)
	switch f.From {
	case "form":
		d.form(f)
	case "value":
		d.value(f)
	default:
		d.stream(f)
	}
	d.flush()
}

func (d *Decoder) fail(err error) (more bool) { return d.flush() && d.yield(&Sample{Err: err}) }

func (d *Decoder) flush() bool {
	if !d.open {
		return true
	}
	d.open = false
	return d.yield(&d.sample)
}

// form skips the key of the source, which must never become a vid.
func (d *Decoder) form(f *Format) {
	fields, err := url.ParseQuery(string(d.message.Body))
	if err != nil {
		d.fail(ErrForm)
		return
	}
	delete(fields, "key")
	for name, all := range fields {
		for _, slot := range f.columns[name] {
			d.values[slot] = value{[]byte(all[0]), true}
		}
	}
	d.element(f)
}

// [Decoder.capture] looks for duplicates of the names that count; comparing all names took most of
// the time.
var options = jsontext.AllowDuplicateNames(true)

func (d *Decoder) value(f *Format) {
	body := bytes.TrimSpace(d.message.Body)
	if !jsontext.Value(body).IsValid(options) {
		for _, slot := range f.root.slots {
			d.values[slot] = value{body, true}
		}
	} else if d.capture(f.root, &jsonscan.Scanner{Rest: body}) {
		d.fail(ErrSyntax)
		return
	}
	d.element(f)
}

// stream reads JSON values one after the other or in an array.
func (d *Decoder) stream(f *Format) {
	body := bytes.TrimPrefix(d.message.Body, []byte("\xef\xbb\xbf"))
	for again := 64 << 10; ; { // bytes after wrong lines that may be read twice
		if body = bytes.TrimLeft(body, " \t\r\n"); len(body) == 0 {
			return
		}
		d.in = *bytes.NewBuffer(body) // without a copy
		d.json.Reset(&d.in, options)
		v, err := d.json.ReadValue()
		if err == nil {
			if body = body[d.json.InputOffset():]; !d.document(f, v) {
				return
			}
			continue
		}
		line := bytes.IndexByte(body, '\n')
		if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			again -= max(0, int(wrong.ByteOffset)-line)
		}
		if !d.fail(ErrSyntax) || line < 0 || again < 0 {
			return
		}
		body = body[line+1:]
	}
}

func (d *Decoder) document(f *Format, v []byte) (more bool) {
	p := jsonscan.Scanner{Rest: v}
	isList := v[0] == '['
	for more := !isList || p.Open('[', ']'); more; more = isList && p.More(']') {
		if !d.next(f, &p) {
			return false
		}
	}
	return true
}

func (d *Decoder) next(f *Format, p *jsonscan.Scanner) (more bool) {
	clear(d.values)
	if d.capture(f.root, p) {
		return d.fail(ErrSyntax)
	}
	if f.element == nil || d.values[0].raw == nil {
		return d.element(f)
	}
	items := jsonscan.Scanner{Rest: d.values[0].raw}
	isList := items.Rest[0] == '['
	base := slices.Clone(d.values)
	for more := !isList || items.Open('[', ']'); more; more = isList && items.More(']') {
		copy(d.values, base)
		if d.capture(f.element, &items) {
			return d.fail(ErrSyntax)
		}
		if !d.element(f) {
			return false
		}
	}
	return true
}

// How much of Decoder.work, in bytes of values, an item and a hash take.
const (
	itemWork = 64
	hashWork = 128
)

// spend reports whether n more bytes may be read. Each item of a list reads the values outside of
// the list again: without a limit, a message of 1 MiB took minutes.
func (d *Decoder) spend(n int) bool {
	d.work -= n
	return d.work >= 0
}

// first returns the first value that is not null, or else a null. It spends work.
func (d *Decoder) first(slots []int) (v value) {
	for _, s := range slots {
		if has := d.values[s]; has.raw != nil {
			if v = has; !v.isNull() {
				break
			}
		}
	}
	if (v.plain || v.raw != nil && v.raw[0] != '[' && v.raw[0] != '{') && !d.spend(len(v.raw)) {
		return value{}
	}
	return v
}

// element makes a sample, or adds to the open one of the same vehicle and time.
func (d *Decoder) element(f *Format) bool {
	more := d.spend(itemWork) && d.add(f)
	if d.work < 0 {
		d.open = false
		d.fail(ErrWork)
	}
	return more && d.work >= 0
}

func (d *Decoder) add(f *Format) bool {
	for _, s := range f.Skip {
		v := d.first(s.slots)
		text, _ := v.text()
		if s.Missing && v.raw == nil || s.Is != nil && slices.Contains(s.Is, text) ||
			s.Not != nil && !slices.Contains(s.Not, text) {
			return d.flush() && d.yield(&Sample{Skipped: true})
		}
	}
	id, external, err := d.vehicle(f)
	if err != nil {
		return d.fail(err)
	}
	at := d.message.Now
	if f.Time.Unit != "arrival" {
		text, ok := d.first(f.time).text()
		if !ok {
			return d.fail(ErrNoTime)
		}
		if at, ok = f.ParseTime(text); !ok || at == 0 {
			return d.fail(ErrTime)
		}
	}
	if at == 0 {
		return d.fail(ErrNoTime)
	}
	name, ok := d.first(f.names).text()
	if n := f.Names.Topic; !ok && n > 0 && n <= len(d.levels) {
		name = d.levels[n-1]
	}
	signals := f.byName[name] // if the mapping has no names, all
	if d.open && (d.sample.Vehicle != id || d.sample.Time != at || f.overlaps(&d.sample.Readings, signals)) && !d.flush() {
		return false
	}
	if !d.open {
		d.open, d.sample = true, Sample{External: external, Unused: d.sample.Unused[:0]}
		d.sample.Vehicle, d.sample.Time = id, at
	}
	d.read(f, signals)
	return true
}

func (f *Format) overlaps(r *signal.Readings, signals []int) bool {
	return f.element != nil && slices.ContainsFunc(signals, func(i int) bool { return r.Has(f.signals[i].Signal) })
}

func (d *Decoder) read(f *Format, signals []int) {
	x := &d.sample
	half := false
	for _, i := range signals {
		s := &f.signals[i]
		if x.Has(s.Signal) { // from an earlier place in the mapping
			continue
		}
		v := d.first(s.slots)
		if s.Signal == signal.DTCList && !d.spend(len(v.raw)) {
			return
		}
		if err := s.set(&x.Readings, v); err != nil {
			if u := (Unused{s.Signal, err}); !slices.Contains(x.Unused, u) {
				x.Unused = append(x.Unused, u)
			}
			half = half || s.IsPosition() || s.Signal == signal.CurrentAccuracy
		}
	}
	if half {
		x.DropPosition()
	}
}

func (d *Decoder) vehicle(f *Format) (id vehicle.ID, external string, _ error) {
	v := d.first(f.vid)
	text, ok := v.text()
	if ok && !v.plain && v.raw[0] != '"' && strings.ContainsAny(text, ".eE+-") {
		return "", "", ErrVID // strip would make another number of it
	}
	if levels := f.VID.Topic; !ok && levels != nil {
		all := d.levels
		if topic, has := d.first(f.topic).text(); has && d.message.Topic == "" {
			all = strings.Split(topic, "/")
		}
		var parts []string
		for _, n := range levels {
			if n <= len(all) {
				parts = append(parts, all[n-1])
			}
		}
		text = strings.Join(parts, "/")
	}
	switch to, listed := f.VID.Table[text]; {
	case text == "" && f.vid == nil && f.VID.Topic == nil && d.message.Vehicle != "":
		return d.message.Vehicle, "", nil
	case text == "":
		return "", "", ErrNoVID
	case listed:
		text = to
	case f.VID.Clean == "strip":
		external, text = text, strings.Map(func(r rune) rune {
			if r < 0x80 && vehicle.CheckID(string(r)) == nil {
				return r
			}
			return -1
		}, text)
		if text == "" {
			return "", "", ErrNoChars
		}
	case f.VID.Clean == "hash":
		d.spend(hashWork)
		sum := sha256.Sum256([]byte(text))
		text = base32.StdEncoding.EncodeToString(sum[:])[:20]
	case f.VID.Table != nil:
		return "", "", ErrTable
	}
	if len(text) > vehicle.MaxReportingID {
		return "", "", ErrLongVID
	}
	id, err := vehicle.ParseID(text)
	if err != nil {
		return "", "", ErrVID
	}
	return id, external, nil
}
