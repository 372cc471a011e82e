package ingest

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// maxDepth is how deep JSON may be nested. A sample needs 3 levels. The other levels are for
// members that are ignored.
const maxDepth = 16

// maxCodes is the maximum number of trouble codes in a sample. SAE J1979 counts the codes of one
// control unit in 7 bits. No car is known to have more than 255 codes in all its control units
// together.
const maxCodes = 255

// earliest is the oldest time a sample may have, 2000-01-01.
const earliest vehicle.UnixMilli = 946_684_800_000

// Decoder decodes one sample at a time. It reuses its buffers, so only one goroutine may use it at
// a time. [NewDecoder] makes one.
type Decoder struct {
	quick   quick
	json    *jsontext.Decoder
	in      bytes.Buffer
	scratch []byte // a string with escapes, unquoted
	codes   [maxCodes]vehicle.TroubleCode
	lastVID vehicle.ID // saves an allocation when one vehicle fills a batch
	ignored ignored    // unknown signals since the caller last reset them
}

// NewDecoder returns a decoder with buffers of its own.
func NewDecoder() *Decoder {
	return &Decoder{json: jsontext.NewDecoder(new(bytes.Buffer))}
}

// Sample decodes line, the JSON of one sample. topic is the vehicle that an MQTT topic names, or
// empty if there is no topic. latest is the latest time that a sample may have. If the line is
// refused, the sample is empty and the error is a *refusal.
func (d *Decoder) Sample(line []byte, topic vehicle.ID, latest vehicle.UnixMilli) (vehicle.Sample, error) {
	if x, ok := d.quick.sample(d, line, topic, latest); ok {
		return x, nil
	}
	return d.careful(line, topic, latest)
}

// careful does what Sample does, but slower, with a general JSON parser. Sample calls careful for a
// line that the fast parser (quick) cannot decode. careful decodes every valid line, and finds the
// reason why an invalid line is refused.
func (d *Decoder) careful(line []byte, topic vehicle.ID, latest vehicle.UnixMilli) (vehicle.Sample, error) {
	if !utf8.Valid(line) {
		return vehicle.Sample{}, errNotUTF8
	}
	// Decoding from a bytes.Buffer makes no copy.
	d.in = *bytes.NewBuffer(line)
	d.json.Reset(&d.in)
	x := vehicle.Sample{Vehicle: topic}
	hasSignals := false
	err := d.members(errNotObject, func(name []byte) (err error) {
		switch string(name) {
		case "vid":
			x.Vehicle, err = d.vid(topic)
		case "time":
			x.Time, err = d.time(latest)
		case "signals":
			hasSignals = true
			err = d.signals(&x.Readings)
		default:
			err = d.skip()
		}
		return err
	})
	if err != nil {
		return vehicle.Sample{}, err
	}
	if _, err := d.json.ReadToken(); err != io.EOF {
		return vehicle.Sample{}, errTrailing
	}
	switch {
	case x.Vehicle == "":
		return vehicle.Sample{}, errNoVID
	case x.Time == 0:
		return vehicle.Sample{}, errNoTime
	case !hasSignals:
		return vehicle.Sample{}, errNoSignals
	}
	return x, nil
}

// members reads a JSON object and calls f with the name of each member. The function f must read
// the member's value from d. The name is valid only until f reads the value. If f returns an error,
// members stops and returns this error. If the next value is not an object, it returns the given
// refusal, wrong. If the JSON is invalid, it returns a *refusal.
func (d *Decoder) members(wrong *refusal, f func(name []byte) error) error {
	if err := d.expect(jsontext.KindBeginObject, wrong); err != nil {
		return err
	}
	if _, err := d.json.ReadToken(); err != nil {
		return syntax(err)
	}
	for d.json.PeekKind() != jsontext.KindEndObject {
		name, err := d.text(nil)
		if err != nil {
			return err
		}
		if err := f(name); err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return syntax(err)
}

func (d *Decoder) vid(topic vehicle.ID) (vehicle.ID, error) {
	b, err := d.text(errVIDType)
	switch {
	case err != nil:
		return "", err
	case topic != "" && string(b) != string(topic):
		return "", errOtherVID
	case topic != "":
		return topic, nil
	case string(b) == string(d.lastVID) && d.lastVID != "":
		return d.lastVID, nil
	case len(b) > vehicle.MaxReportingID:
		return "", errLongVID
	}
	id, err := vehicle.ParseID(string(b))
	if err != nil {
		return "", refuse(access.BadVID, err.Error())
	}
	d.lastVID = id
	return id, nil
}

func (d *Decoder) time(latest vehicle.UnixMilli) (vehicle.UnixMilli, error) {
	var at vehicle.UnixMilli
	if d.json.PeekKind() == jsontext.KindNumber {
		raw, err := d.json.ReadValue()
		if err != nil {
			return 0, syntax(err)
		}
		ms, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || ms < 0 || ms > math.MaxInt64/2 {
			return 0, errTime
		}
		at = vehicle.UnixMilli(ms)
	} else {
		b, err := d.text(errTimeType)
		if err != nil {
			return 0, err
		}
		var ok bool
		if at, ok = parseRFC3339(b); !ok {
			return 0, errTime
		}
	}
	switch {
	case at < earliest:
		return 0, errAncient
	case at > latest:
		return 0, errAhead
	}
	return at, nil
}

// text reads a JSON string. The result is valid only until the next read. If the next value is not
// a string, it returns the given refusal, wrong. If the JSON is invalid, it returns a *refusal that
// says so. If wrong is nil, the next value must be the name of a member: only a string is valid JSON
// there.
func (d *Decoder) text(wrong *refusal) ([]byte, error) {
	if wrong != nil {
		if err := d.expect(jsontext.KindString, wrong); err != nil {
			return nil, err
		}
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return nil, syntax(err)
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	d.scratch, err = jsontext.AppendUnquote(d.scratch[:0], raw)
	return d.scratch, syntax(err)
}

// expect checks the kind of the next JSON value without reading the value. It returns nil if the
// kind is k, and the given refusal, wrong, if it is another kind. If the next bytes are not JSON,
// it returns a refusal that says so.
func (d *Decoder) expect(k jsontext.Kind, wrong *refusal) error {
	switch d.json.PeekKind() {
	case k:
		return nil
	case jsontext.KindInvalid:
		_, err := d.json.ReadToken()
		return syntax(err)
	}
	return wrong
}

// skip reads a JSON value and discards it. If the value is invalid, or nested deeper than maxDepth,
// it returns a *refusal.
func (d *Decoder) skip() error {
	base := d.json.StackDepth()
	for {
		if _, err := d.json.ReadToken(); err != nil {
			return syntax(err)
		}
		switch depth := d.json.StackDepth(); {
		case depth > maxDepth:
			return errDeep
		case depth == base:
			return nil
		}
	}
}

// syntax converts an error of the JSON parser into a refusal for the sender. It does not use the
// text of the error, because that text repeats input. If err is nil, it returns nil.
func syntax(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return errTruncated
	}
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return refuse(access.Malformed, "the line is not valid JSON")
	}
	if !errors.Is(err, jsontext.ErrDuplicateName) {
		return refuse(access.Malformed, "the line is not valid JSON from byte "+strconv.FormatInt(s.ByteOffset+1, 10)+" on")
	}
	name := s.JSONPointer.LastToken()
	if _, ours := vehicle.SignalByName(name); ours || name == "vid" || name == "time" || name == "signals" {
		return refuse(access.Duplicate, name+" appears twice")
	}
	return refuse(access.Duplicate, "a name appears twice in one object")
}
