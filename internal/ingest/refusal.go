package ingest

import (
	"fmt"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// refusal is the error that says why a sample, request or message was refused. Its text is for the
// sender. The text repeats no input, with one exception: if the source is strict (it may send only
// known signals), the text may name an unknown signal.
type refusal struct {
	kind  access.Refusal
	text  string
	shown string // what operators see in place of text if text repeats input
}

func (r *refusal) Error() string { return r.text }

func refuse(k access.Refusal, text string) *refusal { return &refusal{kind: k, text: text} }

// Refusals of a sample with a constant text.
var (
	errNotJSON   = refuse(access.Malformed, "the line is not valid JSON")
	errNotUTF8   = refuse(access.Malformed, "the line is not valid UTF-8")
	errNotObject = refuse(access.Malformed, "a sample is one JSON object, such as "+
		`{"vid":"V","time":1795147200250,"signals":{"Vehicle.Speed":12.4}}`)
	errTrailing  = refuse(access.Malformed, "unexpected data after the JSON object: send one object a line")
	errTruncated = refuse(access.Truncated, "the JSON ends early")
	errDeep      = refuse(access.OverLimit, "the JSON is nested too deep")
	errNoVID     = refuse(access.BadVID, "vid is missing")
	errLongVID   = refuse(access.BadVID, "vid is longer than 256 characters")
	errOtherVID  = refuse(access.OtherVID, "vid differs from the vehicle that the topic names")
	errNoTime    = refuse(access.BadTime, "time is missing")
	errTime      = refuse(access.BadTime, "time must be RFC 3339, such as 2026-11-20T04:00:00.250Z, "+
		"or Unix milliseconds")
	errAncient = refuse(access.BadTime, "time is before the year 2000: "+
		"as a number it must be in milliseconds, not seconds")
	errAhead       = refuse(access.FutureTime, "time is more than 30 s ahead of this service's clock")
	errNoSignals   = refuse(access.NoSignals, "signals is missing")
	errVIDType     = refuse(access.WrongType, "vid must be a string")
	errTimeType    = refuse(access.WrongType, "time must be a string or a number")
	errSignalsType = refuse(access.WrongType, "signals must be an object")
	errCodesType   = refuse(access.WrongType, vehicle.DTCList.String()+" must be an array of strings")
	errManyCodes   = refuse(access.OverLimit, vehicle.DTCList.String()+" has more than 255 trouble codes")
	errMILType     = refuse(access.WrongType, vehicle.MILOn.String()+" must be true or false")
	errPowerType   = refuse(access.WrongType, vehicle.LowVoltageSystemState.String()+" must be a string")
	errForgotten   = refuse(access.WasForgotten, "the vehicle was forgotten: "+
		"its samples are refused until the operator allows it again")
	errFull = refuse(access.VehicleLimit, "a new vehicle beyond the limit of vehicles: "+
		"the operator can raise --max-vehicles")
	errNotAllowed = refuse(access.NotAllowed, "the source may not send data of this vehicle")
)

// errNumberType has, for each signal whose value is a number, the refusal of another value.
var errNumberType = func() (all [vehicle.NumSignals]*refusal) {
	for s := range all {
		all[s] = refuse(access.WrongType, vehicle.Signal(s).String()+" must be a number")
	}
	return all
}()

// Refusals of a whole request or message.
var (
	errBodyTooLarge   = refuse(access.OverLimit, "the body is larger than 8 MiB after decompression")
	errSampleTooLarge = refuse(access.OverLimit, "a sample is larger than 64 KiB")
	errTooManySamples = refuse(access.OverLimit, "there are more than 10,000 samples: send them in several batches")
	errUnreadable     = refuse(access.Unreadable,
		"the body cannot be read: it is incomplete, or does not match its Content-Encoding")
	errSlowBody   = refuse(access.TooSlow, "the body"+tooSlow)
	errSlowPacket = refuse(access.TooSlow, "the packet"+tooSlow)
	errOverQuota  = refuse(access.NoRoom,
		"too much telemetry is in progress, in total or of this source; nothing of this request was accepted")
	errNotStored = refuse(access.NotStored, "telemetry cannot be stored now; nothing of this request was accepted")
	errEmptyBody = refuse(access.Empty, "the body has no sample")
	errEmpty     = refuse(access.Empty, "the message has no sample")
	errQoS       = refuse(access.BadQoS, "QoS 2 is not supported: use QoS 0 or 1")
	errTopic     = refuse(access.BadTopic, "wrong topic: send telemetry to vehicles/VID/telemetry; "+
		"a VID has letters and digits only")
	errPacketTooLarge = refuse(access.OverLimit, "the packet is larger than 1 MiB, or too large for its type")
	errMethod         = refuse(access.Method, "method not allowed: send telemetry by POST")
	errContentType    = refuse(access.ContentType,
		"the Content-Type must be application/x-ndjson or application/json, in UTF-8")
	errEncoding = refuse(access.ContentType, "the Content-Encoding must be gzip, or the header must be absent")
)

const tooSlow = " arrived too slowly: the minimum is 1 KB/s, and at most 60 s in total"

// overRate returns the refusal of data over the rate r, which may be sent again after wait.
func overRate(r access.Rate, wait time.Duration) *refusal {
	unit := "samples"
	if r.Calls == 1 {
		unit = "sample"
	}
	return refuse(access.OverRate, fmt.Sprintf("the policy of this source allows %d %s in %d s: wait %d s",
		r.Calls, unit, int64(r.Window/time.Second), access.WaitSeconds(wait)))
}
