package telemetry

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const (
	maxAhead  = 30 * time.Second
	maxBehind = 366 * 24 * time.Hour // an older time comes from a clock that is wrong
	maxDepth  = 16                   // of JSON
	// SAE J1979 counts the codes of one control unit in 7 bits.
	maxCodes = 255
)

type decoder struct {
	json    *jsontext.Decoder
	in      bytes.Buffer
	syntax  *Refusal
	scratch []byte // of general
	codes   [maxCodes]signal.TroubleCode
	lastVID vehicle.ID // saves an allocation

	members [][]byte // of usual
	unknown [][]byte // names, in the order of the line
	unused  []unusedValue
	half    bool // a position is not complete
}

func newDecoder() *decoder { return &decoder{json: jsontext.NewDecoder(new(bytes.Buffer))} }

func (d *decoder) begin() {
	d.members, d.unknown, d.unused, d.scratch = d.members[:0], d.unknown[:0], d.unused[:0], d.scratch[:0]
	d.half = false
}

// sample gets the vehicle of an MQTT topic, or "". d.unknown and d.unused have, until the next call,
// what was found up to a refusal.
func (d *decoder) sample(line []byte, topic vehicle.ID, latest signal.UnixMilli) (vehicle.Sample, *Refusal) {
	if x, ok := d.usual(line, topic, latest); ok {
		return x, nil
	}
	x, why := d.general(line, topic, latest)
	if first := d.syntax; first != nil && (bytes.Contains(line, []byte("NaN")) || bytes.Contains(line, []byte("Infinity"))) {
		x, why = d.general(notNumber.ReplaceAll(line, []byte("null")), topic, latest)
		if d.syntax != nil {
			why = first
		}
	}
	return x, why
}

// JSON libraries of Python and JavaScript write these for a float that is no number.
var notNumber = regexp.MustCompile(`-?\b(NaN|Infinity)\b`)

// The reason is d.syntax if the line is no JSON object, too deep or has a name twice, and else the
// first in the line.
func (d *decoder) general(line []byte, topic vehicle.ID, latest signal.UnixMilli) (x vehicle.Sample, why *Refusal) {
	d.begin()
	d.in, d.syntax = *bytes.NewBuffer(line), nil // without a copy
	d.json.Reset(&d.in)
	x.Vehicle = topic
	hasSignals := false
	if !utf8.Valid(line) {
		d.syntax = errNotUTF8
	} else if k := d.json.PeekKind(); k != jsontext.KindBeginObject && k != jsontext.KindInvalid {
		d.syntax = errNotObject
	}
	for name := range d.object {
		switch {
		case why != nil:
			d.value()
		case string(name) == "vid":
			x.Vehicle, why = d.vid(d.value(), topic)
		case string(name) == "time":
			x.Time, why = timeOf(d.value(), latest)
		case string(name) == "signals" && d.peek() == jsontext.KindBeginObject:
			hasSignals = true
			d.signals(&x.Readings)
		case string(name) == "signals":
			why = errSignalsType
			d.value()
		default:
			d.value()
		}
	}
	if d.syntax == nil {
		if _, err := d.json.ReadToken(); err != io.EOF {
			d.syntax = errTrailing
		}
	}
	if d.syntax != nil {
		d.unknown, d.unused = d.unknown[:0], d.unused[:0]
		return x, d.syntax
	}
	if why == nil {
		why = missing(&x, hasSignals)
	}
	return x, why
}

func missing(x *vehicle.Sample, hasSignals bool) *Refusal {
	switch {
	case x.Vehicle == "":
		return errNoVID
	case x.Time == 0:
		return errNoTime
	case !hasSignals:
		return errNoSignals
	}
	return nil
}

func (d *decoder) signals(r *signal.Readings) {
	for name := range d.object {
		s, ok := signal.ByName(name)
		switch {
		case !ok:
			d.unknown = append(d.unknown, name)
			d.value()
		case s == signal.DTCList && d.peek() != jsontext.KindNull:
			d.note(name, s, d.troubleCodes(r))
		default:
			d.note(name, s, set(s, d.value(), r))
		}
	}
	d.dropHalf(r)
}

// All texts of an entry have codes: "P2135", {"code":"P2135"}, and the pairs of python-OBD.
func (d *decoder) troubleCodes(r *signal.Readings) *Refusal {
	c := d.codesOf(r)
	entry := func() {
		readable := false
		for text := range d.texts {
			readable = c.add(text) || readable
		}
		c.entry(readable)
	}
	if d.peek() != jsontext.KindBeginArray {
		entry()
		return c.set(r)
	}
	for d.token(); d.syntax == nil && d.json.PeekKind() != jsontext.KindEndArray; {
		entry()
	}
	d.token()
	return c.set(r)
}

func (d *decoder) peek() jsontext.Kind {
	if d.syntax != nil {
		return jsontext.KindInvalid
	}
	return d.json.PeekKind()
}

// token returns no bracket, and reads nothing after an error.
func (d *decoder) token() (v jsontext.Value) {
	var err error
	switch d.peek() {
	case jsontext.KindBeginObject, jsontext.KindEndObject, jsontext.KindBeginArray, jsontext.KindEndArray:
		if _, err = d.json.ReadToken(); d.json.StackDepth() > maxDepth {
			d.syntax = errDeep
		}
	default:
		if d.syntax == nil {
			v, err = d.json.ReadValue()
		}
	}
	if err != nil {
		d.syntax = syntax(err)
	}
	return v
}

// The caller of object must read the value after each name.
func (d *decoder) object(yield func([]byte) bool) {
	for d.token(); d.syntax == nil && d.json.PeekKind() != jsontext.KindEndObject; {
		if name := d.token(); d.syntax == nil {
			yield(d.unquote(name))
		}
	}
	d.token()
}

// texts yields the strings in a value, with names of members.
func (d *decoder) texts(yield func([]byte) bool) {
	for depth := d.json.StackDepth(); ; {
		if v := d.token(); len(v) > 0 && v[0] == '"' {
			yield(d.unquote(v))
		}
		if d.syntax != nil || d.json.StackDepth() == depth {
			return
		}
	}
}

func (d *decoder) unquote(v jsontext.Value) []byte {
	n := len(d.scratch)
	d.scratch, _ = jsontext.AppendUnquote(d.scratch, v)
	return d.scratch[n:]
}

type value struct {
	kind   jsontext.Kind
	text   []byte  // valid until the next line
	number float64 // beyond float64, an infinity
}

func (d *decoder) value() (v value) {
	switch v.kind = d.peek(); v.kind {
	case jsontext.KindString:
		v.text = d.unquote(d.token())
	case jsontext.KindNumber:
		v.number, _ = strconv.ParseFloat(string(d.token()), 64)
	default:
		for range d.texts {
		}
	}
	return v
}

// The error's text repeats input.
func syntax(err error) *Refusal {
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return errTruncated
	}
	s, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return errNotJSON
	}
	if !errors.Is(err, jsontext.ErrDuplicateName) {
		return Refuse(access.Malformed, errNotJSON.Text+" from byte "+strconv.FormatInt(s.ByteOffset+1, 10)+" on")
	}
	name := s.JSONPointer.LastToken()
	if _, ours := signal.ByName(name); ours || name == "vid" || name == "time" || name == "signals" {
		return Refuse(access.Duplicate, name+" appears twice")
	}
	return Refuse(access.Duplicate, "a name appears twice in one object")
}

func (d *decoder) vid(v value, topic vehicle.ID) (vehicle.ID, *Refusal) {
	switch {
	case v.kind != jsontext.KindString:
		return "", errVIDType
	case topic != "" && string(v.text) != string(topic):
		return "", errOtherVID
	case topic != "":
		return topic, nil
	case len(v.text) > 0 && string(v.text) == string(d.lastVID):
		return d.lastVID, nil
	case len(v.text) > vehicle.MaxReportingID:
		return "", errLongVID
	}
	if err := vehicle.CheckID(v.text); err != nil {
		return "", Refuse(access.BadVID, err.Error())
	}
	d.lastVID = vehicle.ID(v.text)
	return d.lastVID, nil
}

func timeOf(v value, latest signal.UnixMilli) (at signal.UnixMilli, _ *Refusal) {
	switch ms := v.number; {
	case v.kind == jsontext.KindString:
		var ok bool
		if at, ok = parseRFC3339(v.text); !ok {
			return 0, refuseTime(v.text)
		}
		return at, checkTime(at, latest)
	case v.kind != jsontext.KindNumber:
		return 0, errTimeType
	case ms < 0 || ms > math.MaxInt64/2:
		return 0, errTime
	case ms < 1e11: // 1973
		return 0, errSeconds
	case ms > 1e14: // 5138
		return 0, errMicroseconds
	}
	at = signal.UnixMilli(v.number)
	return at, checkTime(at, latest)
}

func checkTime(at, latest signal.UnixMilli) *Refusal {
	switch {
	case at > latest:
		return refuseAhead(at, latest)
	case at < latest.Add(-maxBehind):
		return refuseOld(latest - at)
	}
	return nil
}

// The first name of a signal wins.
func set(s signal.Signal, v value, r *signal.Readings) *Refusal {
	switch {
	case v.kind == jsontext.KindNull:
		return errNotAvailable
	case s == signal.MILOn:
		switch v.kind {
		case jsontext.KindFalse:
			return whyUnused(s, r.Set(s, 0))
		case jsontext.KindTrue:
			return whyUnused(s, r.Set(s, 1))
		}
		return errMILType
	case s == signal.LowVoltageSystemState && v.kind != jsontext.KindString:
		return errPowerType
	case s == signal.LowVoltageSystemState:
		i, err := signal.ParseIgnition(string(v.text))
		if err == nil {
			err = r.SetIgnition(i)
		}
		return whyUnused(s, err)
	case v.kind != jsontext.KindNumber:
		return errNumberType
	}
	first, again := r.Value(s)
	if err := r.SetReported(s, v.number); err != nil {
		return whyUnused(s, err)
	}
	if second, _ := r.Value(s); again && second != first {
		_ = r.Set(s, float64(first))
		return errOtherName
	}
	return nil
}

func (d *decoder) note(name []byte, s signal.Signal, why *Refusal) {
	if why != nil {
		d.unused = append(d.unused, unusedValue{name, why})
		d.half = d.half || s.IsPosition() || why == errRange[signal.CurrentAccuracy]
	}
}

// Half of a position must not be joined with a later reading. iOS sends a negative accuracy with an
// invalid position.
func (d *decoder) dropHalf(r *signal.Readings) {
	if d.half {
		r.Clear(signal.CurrentLatitude)
		r.Clear(signal.CurrentLongitude)
	}
}

type codeList struct {
	codes []signal.TroubleCode
	why   *Refusal
}

// The signal may have had another name before.
func (d *decoder) codesOf(r *signal.Readings) codeList {
	return codeList{codes: append(d.codes[:0], r.Codes...)}
}

func (c *codeList) add(text []byte) (readable bool) {
	found, readable := signal.TroubleCodes(string(text))
	c.codes = append(c.codes, found...)
	return readable
}

func (c *codeList) entry(readable bool) {
	if !readable {
		c.why = errNotCodes
	}
	if len(c.codes) > maxCodes {
		c.codes, c.why = c.codes[:maxCodes], errManyCodes
	}
}

// An unreadable list must not end an anomaly.
func (c *codeList) set(r *signal.Readings) *Refusal {
	if len(c.codes) > 0 || c.why == nil {
		_ = r.SetCodes(slices.Clone(c.codes)) // without spare capacity, because the sample may wait long
	}
	return c.why
}
