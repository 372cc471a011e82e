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
	"example.org/carstate/internal/jsonscan"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

const (
	maxAhead  = 30 * time.Second
	maxBehind = 366 * 24 * time.Hour // an older time comes from a clock that is wrong
	maxDepth  = 16                   // of JSON
	// SAE J1979 counts the codes of one control unit in 7 bits; no known car has more than 255 in all.
	maxCodes   = 255
	maxUnknown = 16 // ignored names of an object that are searched for duplicates
)

type decoder struct {
	json    *jsontext.Decoder
	in      bytes.Buffer
	lastVID vehicle.ID // of an earlier line; saves an allocation

	others  [][]byte // names of members that are not read
	unknown [][]byte // names of signals, in the order of the line
	unused  []unusedValue
	half    bool // a position is not complete
}

func newDecoder() *decoder { return &decoder{json: jsontext.NewDecoder(new(bytes.Buffer))} }

// topic is the vehicle of an MQTT topic, or "". Until the next call, d.unknown and d.unused have
// what was found up to a refusal. The refusal of check precedes that of parse.
func (d *decoder) sample(line []byte, topic vehicle.ID, latest signal.UnixMilli) (vehicle.Sample, *Refusal) {
	x, why, usual := d.parse(line, topic, latest)
	if usual {
		return x, nil
	}
	wrong := d.check(line)
	if wrong != nil && (bytes.Contains(line, []byte("NaN")) || bytes.Contains(line, []byte("Infinity"))) {
		line = notNumber.ReplaceAll(line, []byte("null"))
		if d.check(line) == nil {
			x, why, _ = d.parse(line, topic, latest)
			return x, why
		}
	}
	if wrong != nil {
		d.unknown, d.unused = d.unknown[:0], d.unused[:0]
		return x, wrong
	}
	return x, why
}

// notNumber is how JSON libraries of Python and JavaScript write NaN and infinities.
var notNumber = regexp.MustCompile(`-?\b(NaN|Infinity)\b`)

// check refuses what is no JSON object, too deep, or has a name twice.
func (d *decoder) check(line []byte) *Refusal {
	d.in = *bytes.NewBuffer(line) // without a copy
	d.json.Reset(&d.in)
	if !utf8.Valid(line) {
		return errNotUTF8
	} else if k := d.json.PeekKind(); k != jsontext.KindBeginObject && k != jsontext.KindInvalid {
		return errNotObject
	}
	for more := true; more; more = d.json.StackDepth() > 0 {
		if _, err := d.json.ReadToken(); err != nil {
			return syntax(err)
		}
		if d.json.StackDepth() > maxDepth {
			return errDeep
		}
	}
	if _, err := d.json.ReadToken(); err != io.EOF {
		return errTrailing
	}
	return nil
}

// parse reads any object that check accepts. If usual is true, check would accept the line. parse
// stops at the first reason why the line is refused; usual is false then.
func (d *decoder) parse(line []byte, topic vehicle.ID, latest signal.UnixMilli) (x vehicle.Sample, why *Refusal, usual bool) {
	d.others, d.unknown, d.unused, d.half = d.others[:0], d.unknown[:0], d.unused[:0], false
	p := jsonscan.Scanner{Rest: line}
	var hasVID, hasTime, hasSignals bool
	x.Vehicle = topic
	for more := p.Open('{', '}'); more && why == nil; more = p.More('}') {
		name := p.Name()
		switch {
		case string(name) == "vid":
			p.Once(&hasVID)
			x.Vehicle, why = d.vid(p.Value(), topic)
		case string(name) == "time":
			p.Once(&hasTime)
			x.Time, why = timeOf(p.Value(), latest)
		case string(name) == "signals" && p.Space() == '{':
			p.Once(&hasSignals)
			d.signals(&p, &x.Readings)
		case string(name) == "signals":
			why = errSignalsType
		default:
			d.others = ignore(&p, d.others, name)
		}
	}
	p.Space()
	switch {
	case why != nil:
	case x.Vehicle == "":
		why = errNoVID
	case x.Time == 0:
		why = errNoTime
	case !hasSignals:
		why = errNoSignals
	}
	return x, why, why == nil && !p.Unusual && p.Rest != nil && len(p.Rest) == 0
}

func (d *decoder) signals(p *jsonscan.Scanner, r *signal.Readings) {
	var seen [signal.Num]bool
	for more := p.Open('{', '}'); more; more = p.More('}') {
		name := p.Name()
		s, ok := signal.ByName(name)
		switch {
		case !ok:
			d.unknown = ignore(p, d.unknown, name)
			continue
		case s == signal.DTCList && p.Space() != 'n':
			d.note(name, s, troubleCodes(p, r))
		default:
			d.note(name, s, set(s, p.Value(), r))
		}
		p.Once(&seen[s])
	}
	if d.half { // must not be completed by a later reading
		r.DropPosition()
	}
}

func ignore(p *jsonscan.Scanner, names [][]byte, name []byte) [][]byte {
	p.Unusual = p.Unusual || len(names) >= maxUnknown ||
		slices.ContainsFunc(names, func(other []byte) bool { return string(other) == string(name) })
	p.Value()
	return append(names, name)
}

// troubleCodes searches all texts of an entry: "P2135", {"code":"P2135"}, the pairs of python-OBD.
func troubleCodes(p *jsonscan.Scanner, r *signal.Readings) (why *Refusal) {
	codes := r.Codes // already read if the line has both names of the signal
	isList := p.Space() == '['
	for more := !isList || p.Open('[', ']'); more; more = isList && p.More(']') {
		readable := false
		for text := range p.Texts {
			found, ok := signal.TroubleCodes(string(text))
			codes, readable = append(codes, found...), readable || ok
		}
		if !readable {
			why = errNotCodes
		}
		if len(codes) > maxCodes {
			codes, why = codes[:maxCodes], errManyCodes
		}
	}
	// An empty list would end an anomaly; an unreadable one must not.
	if len(codes) > 0 || why == nil {
		_ = r.SetCodes(slices.Clone(codes)) // without spare capacity, because the sample may wait long
	}
	return why
}

// syntax does not use the text of err, which repeats input.
func syntax(err error) *Refusal {
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return errTruncated
	}
	s, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return errNotJSON
	}
	if !errors.Is(err, jsontext.ErrDuplicateName) {
		return NewRefusal(access.Malformed, errNotJSON.Text+" from byte "+strconv.FormatInt(s.ByteOffset+1, 10)+" on")
	}
	name := s.JSONPointer.LastToken()
	if _, ours := signal.ByName(name); ours || name == "vid" || name == "time" || name == "signals" {
		return NewRefusal(access.Duplicate, name+" appears twice")
	}
	return NewRefusal(access.Duplicate, "a name appears twice in one object")
}

func (d *decoder) vid(v jsonscan.Value, topic vehicle.ID) (vehicle.ID, *Refusal) {
	switch {
	case v.Kind != jsontext.KindString:
		return "", errVIDType
	case topic != "" && string(v.Text) != string(topic):
		return "", errOtherVID
	case topic != "":
		return topic, nil
	case len(v.Text) > 0 && string(v.Text) == string(d.lastVID):
		return d.lastVID, nil
	case len(v.Text) > vehicle.MaxReportingID:
		return "", errLongVID
	}
	if err := vehicle.CheckID(v.Text); err != nil {
		return "", NewRefusal(access.BadVID, err.Error())
	}
	d.lastVID = vehicle.ID(v.Text)
	return d.lastVID, nil
}

func timeOf(v jsonscan.Value, latest signal.UnixMilli) (at signal.UnixMilli, _ *Refusal) {
	switch ms := v.Number; {
	case v.Kind == jsontext.KindString:
		var ok bool
		if at, ok = parseRFC3339(v.Text); !ok {
			return 0, errTimeText(v.Text)
		}
		return at, checkTime(at, latest)
	case v.Kind != jsontext.KindNumber:
		return 0, errTimeType
	case ms < 0 || ms > math.MaxInt64/2:
		return 0, errTime
	case ms < 1e11: // 1973
		return 0, errSeconds
	case ms > 1e14: // 5138
		return 0, errMicroseconds
	}
	at = signal.UnixMilli(v.Number)
	return at, checkTime(at, latest)
}

func checkTime(at, latest signal.UnixMilli) *Refusal {
	switch {
	case at > latest:
		return errAhead(at, latest)
	case at < latest.Add(-maxBehind):
		return errOld(latest - at)
	}
	return nil
}

// Of a signal with two names, set keeps the first value.
func set(s signal.Signal, v jsonscan.Value, r *signal.Readings) *Refusal {
	switch {
	case v.Kind == jsontext.KindNull:
		return errNotAvailable
	case s == signal.MILOn:
		switch v.Kind {
		case jsontext.KindFalse:
			return whyUnused(s, r.Set(s, 0))
		case jsontext.KindTrue:
			return whyUnused(s, r.Set(s, 1))
		}
		return errMILType
	case s == signal.LowVoltageSystemState && v.Kind != jsontext.KindString:
		return errPowerType
	case s == signal.LowVoltageSystemState:
		return whyUnused(s, r.SetIgnition(string(v.Text)))
	case v.Kind != jsontext.KindNumber:
		return errNumberType
	}
	first, again := r.Value(s)
	if err := r.SetReported(s, v.Number); err != nil {
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
		// iOS sends a negative accuracy with an invalid position.
		d.half = d.half || s.IsPosition() || why == errRange[signal.CurrentAccuracy]
	}
}
