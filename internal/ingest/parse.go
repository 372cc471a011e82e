package ingest

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"math"
	"slices"
	"strconv"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// maxCodes is the maximum number of trouble codes in a sample. SAE J1979 counts the codes of one
// control unit in 7 bits. No car is known to have more than 255 codes in all its control units
// together.
const maxCodes = 255

// maxUnknown is the maximum number of ignored members of an object whose names parse remembers, to
// find duplicates. If an object has more, the line must be checked first.
const maxUnknown = 16

// parse reads a line as [decoder.sample] describes it. If the line is not checked, parse also fails
// on a valid line that does not have the usual form (see decoder). On a line that the check would
// refuse, it fails, too. FuzzParse verifies this, and that the result of a line does not depend on
// whether the line is checked.
func (d *decoder) parse(line []byte, topic vehicle.ID, latest vehicle.UnixMilli, checked bool) (
	x vehicle.Sample, _ error,
) {
	d.rest, d.checked, d.reason = line, checked, nil
	d.members, d.unknown, d.unused, d.scratch = d.members[:0], d.unknown[:0], d.unused[:0], d.scratch[:0]
	var hasVID, hasTime, hasSignals bool
	x.Vehicle = topic
	for more := d.begin('{', '}', errNotObject); more; more = d.more('}') {
		name := d.name()
		switch string(name) {
		case "vid":
			d.once(&hasVID)
			x.Vehicle = d.vid(topic)
		case "time":
			d.once(&hasTime)
			x.Time = d.time(latest)
		case "signals":
			d.once(&hasSignals)
			d.signals(&x.Readings)
		default:
			d.skipMember(&d.members, name)
		}
	}
	d.space()
	switch {
	case d.reason != nil:
		return x, d.reason
	case len(d.rest) > 0:
		return x, errTrailing
	case x.Vehicle == "":
		return x, errNoVID
	case x.Time == 0:
		return x, errNoTime
	case !hasSignals:
		return x, errNoSignals
	}
	return x, nil
}

// fail discards the rest of the line, so that every loop ends. If the line is checked and no
// failure came before, why is the reason why it is refused.
func (d *decoder) fail(why *refusal) {
	d.rest = nil
	if d.reason == nil {
		d.reason = why
	}
}

// once notes that a member was seen. If it was seen before, parsing fails.
func (d *decoder) once(seen *bool) {
	if *seen {
		d.fail(errNotJSON)
	}
	*seen = true
}

// space skips white space and returns the next byte without reading it, or 0 at the end.
func (d *decoder) space() byte {
	for i, c := range d.rest {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			d.rest = d.rest[i:]
			return c
		}
	}
	if d.rest != nil {
		d.rest = d.rest[len(d.rest):]
	}
	return 0
}

// take skips white space and reads the byte c. For another byte, it fails for the given reason.
func (d *decoder) take(c byte, wrong *refusal) {
	if d.space() != c {
		d.fail(wrong)
		return
	}
	d.rest = d.rest[1:]
}

// begin reads open, and reports whether a member or element follows. If none does, it also reads end.
func (d *decoder) begin(open, end byte, wrong *refusal) bool {
	d.take(open, wrong)
	if d.space() == end {
		d.rest = d.rest[1:]
		return false
	}
	return d.rest != nil
}

// more reads a comma and returns true, or end, the closing byte, and returns false.
func (d *decoder) more(end byte) bool {
	switch d.space() {
	case ',':
		d.rest = d.rest[1:]
		return true
	case end:
		d.rest = d.rest[1:]
		return false
	}
	d.fail(errNotJSON)
	return false
}

// name reads the name of a member, and the colon after it. The result is valid until the next line.
func (d *decoder) name() []byte {
	name := d.text(errNotJSON)
	d.take(':', errNotJSON)
	return name
}

// text reads a JSON string and returns its content, which is valid until the next line. If the next
// value is not a string, parsing fails for the given reason, and text returns nil. If the line is
// not checked, an escape or a character outside ASCII is a failure, too.
func (d *decoder) text(wrong *refusal) []byte {
	if d.space() != '"' {
		d.fail(wrong)
		return nil
	}
	for i := 1; i < len(d.rest); i++ {
		switch c := d.rest[i]; {
		case c == '"':
			s := d.rest[1:i]
			d.rest = d.rest[i+1:]
			return s
		case c < ' ' || c == '\\' || c > '~':
			return d.unusualText()
		}
	}
	d.fail(errNotJSON)
	return nil
}

// unusualText reads a JSON string with escapes or characters outside ASCII, as text does.
func (d *decoder) unusualText() []byte {
	if !d.checked {
		d.fail(errNotJSON)
		return nil
	}
	end := 1
	for d.rest[end] != '"' {
		if d.rest[end] == '\\' {
			end++
		}
		end++
	}
	begin := len(d.scratch)
	d.scratch, _ = jsontext.AppendUnquote(d.scratch, d.rest[:end+1])
	d.rest = d.rest[end+1:]
	return d.scratch[begin:]
}

// number reads a JSON number. If the line is not checked, it also fails for an exponent or more than 15
// digits. In a checked line, a number beyond float64 becomes an infinity.
func (d *decoder) number(wrong *refusal) (v float64) {
	if d.checked {
		b := bytes.TrimLeft(d.rest, "+-.0123456789eE")
		v, err := strconv.ParseFloat(string(d.rest[:len(d.rest)-len(b)]), 64)
		if d.rest = b; errors.Is(err, strconv.ErrSyntax) {
			d.fail(wrong)
		}
		return v
	}
	b, i := d.rest, 0
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	var digits uint64 // all digits, without the decimal point
	first := i
	for ; i < len(b) && isDigit(b[i]); i++ {
		digits = 10*digits + uint64(b[i]-'0')
	}
	n := i - first
	if n == 0 || n > 1 && b[first] == '0' {
		d.fail(wrong)
		return 0
	}
	places := 0
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && isDigit(b[i]); i++ {
			digits = 10*digits + uint64(b[i]-'0')
			places++
		}
		if places == 0 {
			d.fail(wrong)
			return 0
		}
	}
	// A number of up to 15 digits is exact as a float64, and so is the power of ten. So only their
	// quotient is rounded, and it equals the result of ParseFloat.
	if n+places > 15 || i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		d.fail(wrong)
		return 0
	}
	d.rest = b[i:]
	v = float64(digits) / powersOfTen[places]
	if negative {
		return -v
	}
	return v
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// word reads w: true, false or null. For another text, it fails for the given reason.
func (d *decoder) word(w string, wrong *refusal) {
	if len(d.rest) < len(w) || string(d.rest[:len(w)]) != w {
		d.fail(wrong)
		return
	}
	d.rest = d.rest[len(w):]
}

// skipMember reads the value of an ignored member of the object with the ignored names. If the line is
// not checked, parsing fails if the name was there, if the object has more than maxUnknown ignored
// members, or if the value is an object or array.
func (d *decoder) skipMember(names *[][]byte, name []byte) {
	if !d.checked && (len(*names) == maxUnknown ||
		slices.ContainsFunc(*names, func(other []byte) bool { return string(other) == string(name) })) {
		d.fail(errNotJSON)
		return
	}
	if !d.checked || names == &d.unknown {
		*names = append(*names, name)
	}
	d.skip()
}

func (d *decoder) skip() {
	c := d.space()
	if (c == '{' || c == '[') && !d.checked {
		d.fail(errNotJSON)
	}
	switch c {
	case '{':
		for more := d.begin('{', '}', errNotJSON); more; more = d.more('}') {
			d.name()
			d.skip()
		}
	case '[':
		for more := d.begin('[', ']', errNotJSON); more; more = d.more(']') {
			d.skip()
		}
	case '"':
		d.text(errNotJSON)
	case 't':
		d.word("true", errNotJSON)
	case 'f':
		d.word("false", errNotJSON)
	case 'n':
		d.word("null", errNotJSON)
	default:
		d.number(errNotJSON)
	}
}

func (d *decoder) vid(topic vehicle.ID) vehicle.ID {
	b := d.text(errVIDType)
	switch {
	case topic != "":
		if string(b) != string(topic) {
			d.fail(errOtherVID)
		}
		return topic
	case len(b) > 0 && string(b) == string(d.lastVID):
		return d.lastVID
	case len(b) > vehicle.MaxReportingID:
		d.fail(errLongVID)
		return ""
	}
	if err := vehicle.CheckID(b); err != nil {
		d.fail(refuse(access.BadVID, err.Error()))
		return ""
	}
	d.lastVID = vehicle.ID(b)
	return d.lastVID
}

func (d *decoder) time(latest vehicle.UnixMilli) (at vehicle.UnixMilli) {
	if d.space() == '"' {
		var ok bool
		b := d.text(errTimeType)
		if at, ok = parseRFC3339(b); !ok {
			d.fail(refuseTime(b))
		}
	} else {
		ms := d.number(errTimeType)
		switch {
		case ms < 0 || ms > math.MaxInt64/2:
			d.fail(errTime)
		case ms < 1e11: // 1973
			d.fail(errSeconds)
		case ms > 1e14: // 5138
			d.fail(errMicroseconds)
		}
		at = vehicle.UnixMilli(ms)
	}
	if why := checkTime(at, latest); why != nil {
		d.fail(why)
	}
	return at
}

func checkTime(at, latest vehicle.UnixMilli) *refusal {
	switch {
	case at > latest:
		return refuseAhead(at, latest)
	case at < latest.Add(-MaxBehind):
		return refuseOld(latest - at)
	}
	return nil
}

// signals reads the JSON object that holds the signals of a sample, and sets their values in r. It
// adds to d.unused the values that it cannot use. If one half of a position is among them, the
// other half is dropped, so that it is not joined with a later reading. iOS sends a negative
// accuracy with a position that is not valid.
func (d *decoder) signals(r *vehicle.Readings) {
	var seen [vehicle.NumSignals]bool
	half := false
	for more := d.begin('{', '}', errSignalsType); more; more = d.more('}') {
		name := d.name()
		s, ok := vehicle.SignalByName(name)
		if !ok {
			d.skipMember(&d.unknown, name)
			continue
		}
		if !d.checked {
			d.once(&seen[s])
		}
		why := d.value(s, r)
		if why != nil {
			d.unused = append(d.unused, unusedValue{name, why})
			half = half || s.IsPosition() || why == errRange[vehicle.CurrentAccuracy]
		}
	}
	if half {
		r.Clear(vehicle.CurrentLatitude)
		r.Clear(vehicle.CurrentLongitude)
	}
}

// value reads the value of a signal and sets it in r. If the value cannot be used, it returns the
// reason. If r has the signal from another name, the first value is kept.
func (d *decoder) value(s vehicle.Signal, r *vehicle.Readings) *refusal {
	switch c := d.space(); {
	case c == 'n':
		d.skip()
		return errNotAvailable
	case s == vehicle.DTCList:
		return d.troubleCodes(r)
	case s == vehicle.MILOn:
		d.skip()
		switch c {
		case 'f':
			return whyUnused(s, r.Set(s, 0))
		case 't':
			return whyUnused(s, r.Set(s, 1))
		}
		return errMILType
	case s == vehicle.LowVoltageSystemState:
		if c != '"' {
			d.skip()
			return errPowerType
		}
		i, err := vehicle.ParseIgnition(string(d.text(errNotJSON)))
		if err == nil {
			err = r.SetIgnition(i)
		}
		return whyUnused(s, err)
	case c != '-' && !isDigit(c):
		d.skip()
		return errNumberType
	}
	first, again := r.Value(s)
	if err := r.SetReported(s, d.number(errNotJSON)); err != nil {
		return whyUnused(s, err)
	}
	if second, _ := r.Value(s); again && second != first {
		_ = r.Set(s, float64(first))
		return errOtherName
	}
	return nil
}

// troubleCodes reads the value of DTCList and adds its codes to those that r has from the signal's
// other name. If the value has no code, it is a reading only if it is an empty list, or if all its
// entries say that there is no code: an unreadable list must not end an anomaly.
func (d *decoder) troubleCodes(r *vehicle.Readings) (why *refusal) {
	codes := append(d.codes[:0], r.Codes...)
	entry := func() {
		ok := false
		if codes, ok = d.codesIn(codes); !ok {
			why = errNotCodes
		}
		if len(codes) > maxCodes {
			codes, why = codes[:maxCodes], errManyCodes
		}
	}
	if d.space() != '[' {
		entry()
	} else {
		for more := d.begin('[', ']', errNotJSON); more; more = d.more(']') {
			entry()
		}
	}
	if len(codes) > 0 || why == nil {
		// The clone has no spare capacity, because the sample may wait long to be stored.
		_ = r.SetCodes(slices.Clone(codes)) // they are not too many
	}
	return why
}

// codesIn reads any JSON value, adds to codes the trouble codes in its texts, and reports whether a
// text had a code or said that there is none. So it reads "P2135", {"code":"P2135"} and the pairs
// of code and description that python-OBD returns.
func (d *decoder) codesIn(codes []vehicle.TroubleCode) (_ []vehicle.TroubleCode, ok bool) {
	text := func(b []byte) {
		found, readable := vehicle.TroubleCodes(string(b))
		codes, ok = append(codes, found...), ok || readable
	}
	nested := func() {
		var readable bool
		codes, readable = d.codesIn(codes)
		ok = ok || readable
	}
	c := d.space()
	if (c == '{' || c == '[') && !d.checked {
		d.fail(errNotJSON)
	}
	switch c {
	case '"':
		text(d.text(errNotJSON))
	case '{':
		for more := d.begin('{', '}', errNotJSON); more; more = d.more('}') {
			text(d.name())
			nested()
		}
	case '[':
		for more := d.begin('[', ']', errNotJSON); more; more = d.more(']') {
			nested()
		}
	default:
		d.skip()
	}
	return codes, ok
}
