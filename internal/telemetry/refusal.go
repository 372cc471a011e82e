package telemetry

import (
	"fmt"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
)

// Refusal's text repeats no input but the name of an unknown signal.
type Refusal struct {
	Kind  access.Refusal
	Text  string
	Shown string // what operators see, if Text repeats input
}

func (r *Refusal) Error() string { return r.Text }

func NewRefusal(k access.Refusal, text string) *Refusal { return &Refusal{Kind: k, Text: text} }

const members = ": a sample has the members vid, time and signals"

// Refusals of a sample.
var (
	errNotJSON   = NewRefusal(access.Malformed, "the line is not valid JSON")
	errNotUTF8   = NewRefusal(access.Malformed, "the line is not valid UTF-8")
	errNotObject = NewRefusal(access.Malformed, "a sample is one JSON object, such as "+
		`{"vid":"V","time":1795147200250,"signals":{"Vehicle.Speed":12.4}}`)
	errTrailing = NewRefusal(access.Malformed, "unexpected data after the JSON object: several objects need one "+
		"line each and the type application/x-ndjson; curl keeps the lines of a file with --data-binary")
	errTruncated = NewRefusal(access.Truncated, "the JSON ends early")
	errDeep      = NewRefusal(access.OverLimit, "the JSON is nested too deep")
	errNoVID     = NewRefusal(access.BadVID, "vid is missing"+members)
	errLongVID   = NewRefusal(access.BadVID, "vid is longer than 256 characters")
	errOtherVID  = NewRefusal(access.OtherVID, "vid differs from the vehicle that the topic names")
	errNoTime    = NewRefusal(access.BadTime, "time is missing"+members)
	errTime      = NewRefusal(access.BadTime, "time must be RFC 3339, such as 2026-11-20T04:00:00.250Z, "+
		"or Unix milliseconds")
	errSeconds = NewRefusal(access.BadTime, "time is before the year 1974: "+
		"as a number it must be in milliseconds, not seconds")
	errMicroseconds = NewRefusal(access.BadTime, "time is after the year 5000: "+
		"as a number it must be in milliseconds, not microseconds or nanoseconds")
	errNoSignals   = NewRefusal(access.NoSignals, "signals is missing"+members)
	errVIDType     = NewRefusal(access.WrongType, "vid must be a string")
	errTimeType    = NewRefusal(access.WrongType, "time must be a string or a number")
	errSignalsType = NewRefusal(access.WrongType, "signals must be an object")
	errForgotten   = NewRefusal(access.WasForgotten, "the vehicle was forgotten: "+
		"its samples are refused until the operator allows it again")
	errFull = NewRefusal(access.VehicleLimit, "a new vehicle beyond the limit of vehicles: "+
		"the operator can raise --max-vehicles")
	ErrNotAllowed = NewRefusal(access.NotAllowed, "the source may not send data of this vehicle")
)

func errAhead(at, latest signal.UnixMilli) *Refusal {
	return NewRefusal(access.FutureTime, fmt.Sprintf("time is %d s ahead of this service's clock, "+
		"more than 30 s: check the sender's clock and time zone", (at-latest.Add(-maxAhead)+999)/1000))
}

// errOld hints at GPS receivers that count weeks modulo 1,024. age has milliseconds, because a
// time.Duration ends at 292 years.
func errOld(age signal.UnixMilli) *Refusal {
	const (
		day      = 24 * 60 * 60 * 1000
		rollover = 1024 * 7 * day
	)
	hint := ""
	if age >= rollover && age%rollover <= signal.UnixMilli(maxBehind.Milliseconds()) {
		hint = ", as after a rollover of the GPS week"
	}
	years := float64(age) / (365.25 * day)
	return NewRefusal(access.BadTime, fmt.Sprintf("time is %.1f years behind this service's clock%s: "+
		"check the sender's clock", years, hint))
}

// Why a value is not used. The text follows the name of the signal.
var (
	errNotAvailable = NewRefusal(access.NotAvailable, "is not available: it is null, or a number that means so")
	errOtherName    = NewRefusal(access.Duplicate, "has another value under its other name, which is used")
	errNotCodes     = NewRefusal(access.Impossible, "has an entry without a trouble code such as P0120")
	errManyCodes    = NewRefusal(access.OverLimit, "has more than 255 trouble codes")
	errNumberType   = NewRefusal(access.WrongType, "must be a number")
	errMILType      = NewRefusal(access.WrongType, "must be true or false")
	errPowerType    = NewRefusal(access.WrongType, "must be a string")
)

var errRange = func() (all [signal.Num]*Refusal) {
	for s := range all {
		all[s] = NewRefusal(access.Impossible, "must be "+signal.Signal(s).Range())
	}
	return all
}()

// Errors not listed mean that the value is out of range.
var unusedErrors = map[error]*Refusal{
	nil: nil, signal.ErrNotAvailable: errNotAvailable, format.ErrNotNumber: errNumberType, format.ErrNotCodes: errNotCodes,
	format.ErrNotBool: errMILType,
}

func whyUnused(s signal.Signal, err error) *Refusal {
	if why, ok := unusedErrors[err]; ok {
		return why
	}
	return errRange[s]
}

// Refusals of a whole body or message.
var (
	errSampleTooLarge = NewRefusal(access.OverLimit, "a sample is larger than 64 KiB")
	errTooManySamples = NewRefusal(access.OverLimit, "there are more than 10,000 lines: send them in several batches")
)
