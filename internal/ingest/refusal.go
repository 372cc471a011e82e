package ingest

import (
	"fmt"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
)

// refusal's text repeats no input but the name of an unknown signal.
type refusal struct {
	kind  access.Refusal
	text  string
	shown string // for operators, if text repeats input
}

func (r *refusal) Error() string { return r.text }

func refuse(k access.Refusal, text string) *refusal { return &refusal{kind: k, text: text} }

const members = ": a sample has the members vid, time and signals"

// Of a sample.
var (
	errNotJSON   = refuse(access.Malformed, "the line is not valid JSON")
	errNotUTF8   = refuse(access.Malformed, "the line is not valid UTF-8")
	errNotObject = refuse(access.Malformed, "a sample is one JSON object, such as "+
		`{"vid":"V","time":1795147200250,"signals":{"Vehicle.Speed":12.4}}`)
	errTrailing = refuse(access.Malformed, "unexpected data after the JSON object: several objects need one line each "+
		"and the type application/x-ndjson; curl keeps the lines of a file with --data-binary")
	errTruncated = refuse(access.Truncated, "the JSON ends early")
	errDeep      = refuse(access.OverLimit, "the JSON is nested too deep")
	errNoVID     = refuse(access.BadVID, "vid is missing"+members)
	errLongVID   = refuse(access.BadVID, "vid is longer than 256 characters")
	errOtherVID  = refuse(access.OtherVID, "vid differs from the vehicle that the topic names")
	errNoTime    = refuse(access.BadTime, "time is missing"+members)
	errTime      = refuse(access.BadTime, "time must be RFC 3339, such as 2026-11-20T04:00:00.250Z, "+
		"or Unix milliseconds")
	errSeconds = refuse(access.BadTime, "time is before the year 1974: "+
		"as a number it must be in milliseconds, not seconds")
	errMicroseconds = refuse(access.BadTime, "time is after the year 5000: "+
		"as a number it must be in milliseconds, not microseconds or nanoseconds")
	errNoSignals   = refuse(access.NoSignals, "signals is missing"+members)
	errVIDType     = refuse(access.WrongType, "vid must be a string")
	errTimeType    = refuse(access.WrongType, "time must be a string or a number")
	errSignalsType = refuse(access.WrongType, "signals must be an object")
	errForgotten   = refuse(access.WasForgotten, "the vehicle was forgotten: "+
		"its samples are refused until the operator allows it again")
	errFull = refuse(access.VehicleLimit, "a new vehicle beyond the limit of vehicles: "+
		"the operator can raise --max-vehicles")
	errNotAllowed = refuse(access.NotAllowed, "the source may not send data of this vehicle")
)

func refuseAhead(at, latest signal.UnixMilli) *refusal {
	return refuse(access.FutureTime, fmt.Sprintf("time is %d s ahead of this service's clock, "+
		"more than 30 s: check the sender's clock and time zone", (at-latest.Add(-maxAhead)+999)/1000))
}

// Some GPS receivers count weeks modulo 1,024. A time.Duration cannot hold every age.
func refuseOld(age signal.UnixMilli) *refusal {
	const (
		day      = 24 * 60 * 60 * 1000
		rollover = 1024 * 7 * day
	)
	hint := ""
	if age >= rollover && age%rollover <= signal.UnixMilli(maxBehind.Milliseconds()) {
		hint = ", as after a rollover of the GPS week"
	}
	years := float64(age) / (365.25 * day)
	return refuse(access.BadTime, fmt.Sprintf("time is %.1f years behind this service's clock%s: "+
		"check the sender's clock", years, hint))
}

// Why a value is not used. The text follows the name of the signal.
var (
	errNotAvailable = refuse(access.NotAvailable, "is not available: it is null, or a number that means so")
	errOtherName    = refuse(access.Duplicate, "has another value under its other name, which is used")
	errNotCodes     = refuse(access.Impossible, "has an entry without a trouble code such as P0120")
	errManyCodes    = refuse(access.OverLimit, "has more than 255 trouble codes")
	errNumberType   = refuse(access.WrongType, "must be a number")
	errMILType      = refuse(access.WrongType, "must be true or false")
	errPowerType    = refuse(access.WrongType, "must be a string")
)

var errRange = func() (all [signal.Num]*refusal) {
	for s := range all {
		all[s] = refuse(access.Impossible, "must be "+signal.Signal(s).Range())
	}
	return all
}()

func whyUnused(s signal.Signal, err error) *refusal {
	switch err {
	case nil:
		return nil
	case signal.ErrNotAvailable:
		return errNotAvailable
	}
	return errRange[s]
}

// Of a whole request or message.
var (
	errBodyTooLarge   = refuse(access.OverLimit, "the body is larger than 8 MiB after decompression")
	errSampleTooLarge = refuse(access.OverLimit, "a sample is larger than 64 KiB")
	errTooManySamples = refuse(access.OverLimit, "there are more than 10,000 lines: send them in several batches")
	errExpands        = refuse(access.OverLimit, "the body is more than 100 times as large after decompression: "+
		"send no white space, and no sample twice")
	errUnreadable = refuse(access.Unreadable,
		"the body cannot be read: it is incomplete, or does not match its Content-Encoding")
	errSlowBody   = refuse(access.TooSlow, "the body"+tooSlow)
	errSlowPacket = refuse(access.TooSlow, "the packet"+tooSlow)
	errOverQuota  = refuse(access.NoRoom,
		"too much telemetry is in progress, in total or of this source; nothing of this request was accepted")
	errShare     = refuse(access.NoRoom, "the source has used up its share of the MQTT connections")
	errNotStored = refuse(access.NotStored, "telemetry cannot be stored now; nothing of this request was accepted")
	errEmptyBody = refuse(access.Empty, "the body has no sample")
	errEmpty     = refuse(access.Empty, "the message has no sample")
	errQoS       = refuse(access.BadQoS, "QoS 2 is not supported: use QoS 0 or 1")
	errAlias     = refuse(access.BadTopic, "topic aliases are not supported: send the whole topic")
	errTopic     = refuse(access.BadTopic, "wrong topic: send telemetry to vehicles/VID/telemetry; "+
		"a VID has letters and digits only")
	errPacketTooLarge = refuse(access.OverLimit, "the packet is larger than 1 MiB, or too large for its type")
	errMethod         = refuse(access.Method, "method not allowed: send telemetry by POST")
	errContentType    = refuse(access.ContentType,
		"the Content-Type must be application/json, application/x-ndjson or application/cloudevents+json, in UTF-8")
	errEncoding = refuse(access.ContentType, "the Content-Encoding must be gzip, or the header must be absent")
)

const tooSlow = " arrived too slowly: the minimum is 1 KB/s, and at most 60 s in total"

func behind(wait time.Duration) *refusal {
	return refuse(access.Backlog, fmt.Sprintf("earlier samples of this source are still being processed: wait %d s",
		access.WaitSeconds(wait)))
}

func overRate(r access.Rate, wait time.Duration) *refusal {
	unit := "samples"
	if r.Calls == 1 {
		unit = "sample"
	}
	return refuse(access.OverRate, fmt.Sprintf("the policy of this source allows %d %s in %d s: wait %d s",
		r.Calls, unit, int64(r.Window/time.Second), access.WaitSeconds(wait)))
}
