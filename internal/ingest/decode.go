package ingest

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// maxDepth is how deep JSON may be nested: 3 levels for a sample, more for ignored members.
const maxDepth = 16

// decoder decodes samples. It reuses its buffers, so only one goroutine may use it at a time.
//
// Most lines have the form that a program writes: plain ASCII without escapes, each member once, no
// nesting in members that are ignored, and numbers of at most 15 digits. parse reads such a line
// alone. Any other line is first checked by the JSON parser of the standard library, and then read
// by parse.
type decoder struct {
	json    *jsontext.Decoder
	in      bytes.Buffer
	scratch []byte // the line's strings with escapes or characters outside ASCII, unquoted
	codes   [maxCodes]vehicle.TroubleCode
	lastVID vehicle.ID // saves an allocation when one vehicle fills a batch

	rest    []byte   // the part of the line that parse has not read yet; nil after a failure
	checked bool     // the line is one JSON object in which no name appears twice
	reason  *refusal // of the first failure
	members [][]byte // names of the line's ignored members; not used if the line is checked
	unknown [][]byte // names of the line's unknown signals, in their order
	unused  []unusedValue
}

func newDecoder() *decoder { return &decoder{json: jsontext.NewDecoder(new(bytes.Buffer))} }

// sample decodes the JSON of one sample. topic is the vehicle that an MQTT topic names, or empty.
// latest is the latest time that a sample may have. The error is a *refusal. Until the next call,
// d.unknown has the names of the unknown signals, and d.unused the values that the sample does not
// have, up to a failure.
func (d *decoder) sample(line []byte, topic vehicle.ID, latest vehicle.UnixMilli) (vehicle.Sample, error) {
	if x, err := d.parse(line, topic, latest, false); err == nil {
		return x, nil
	}
	d.unknown, d.unused = d.unknown[:0], d.unused[:0]
	if err := d.check(line); err != nil {
		if !bytes.Contains(line, []byte("NaN")) && !bytes.Contains(line, []byte("Infinity")) {
			return vehicle.Sample{}, err
		}
		if line = notNumber.ReplaceAll(line, []byte("null")); d.check(line) != nil {
			return vehicle.Sample{}, err
		}
	}
	return d.parse(line, topic, latest, true)
}

// notNumber matches what the JSON libraries of Python and JavaScript's users write for a float that
// is no number. JSON has no such value.
var notNumber = regexp.MustCompile(`-?\b(NaN|Infinity)\b`)

// check returns nil if line is one JSON object, not nested deeper than maxDepth, in which no name
// appears twice. Otherwise it returns a *refusal.
func (d *decoder) check(line []byte) error {
	if !utf8.Valid(line) {
		return errNotUTF8
	}
	// Decoding from a bytes.Buffer makes no copy.
	d.in = *bytes.NewBuffer(line)
	d.json.Reset(&d.in)
	if k := d.json.PeekKind(); k != jsontext.KindBeginObject && k != jsontext.KindInvalid {
		return errNotObject
	}
	for {
		if _, err := d.json.ReadToken(); err != nil {
			return syntax(err)
		}
		switch depth := d.json.StackDepth(); {
		case depth > maxDepth:
			return errDeep
		case depth == 0:
			if _, err := d.json.ReadToken(); err != io.EOF {
				return errTrailing
			}
			return nil
		}
	}
}

// syntax converts an error of the JSON parser into a refusal for the sender. It does not use the
// text of the error, because that text repeats input.
func syntax(err error) *refusal {
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return errTruncated
	}
	s, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return errNotJSON
	}
	if !errors.Is(err, jsontext.ErrDuplicateName) {
		return refuse(access.Malformed, errNotJSON.text+" from byte "+strconv.FormatInt(s.ByteOffset+1, 10)+" on")
	}
	name := s.JSONPointer.LastToken()
	if _, ours := vehicle.SignalByName(name); ours || name == "vid" || name == "time" || name == "signals" {
		return refuse(access.Duplicate, name+" appears twice")
	}
	return refuse(access.Duplicate, "a name appears twice in one object")
}
