package ingest

import "carstate/internal/vehicle"

// kind is why a sample was refused, as metrics count it. The set is bounded:
// nothing that a sender chooses becomes a label.
type kind uint8

const (
	malformed kind = iota // not one JSON object
	truncated             // JSON that ends early
	duplicate             // a name twice in one object
	wrongType             // a member that is not what it must be
	badVID
	otherVID // differs from the topic's
	badTime
	futureTime
	noSignals
	impossible  // a value that no sensor can give
	notAllowed  // a vehicle that the source does not speak for
	overLimit   // too large, too many, too deep
	forgotten   // a vehicle that the operator has had forgotten
	badTopic    // MQTT: not vehicles/VID/telemetry
	badQoS      // MQTT: QoS 2
	full        // a new vehicle, and there are as many as there may be
	notStored   // the store did not take it: nothing wrong with the sample
	noMemory    // there was no room for it, of all or of its source's share
	tooSlow     // the body or packet came too slowly
	overRate    // more than the source's rate allows
	refusalEnds = iota
)

var kindNames = [refusalEnds]string{
	"malformed", "truncated", "duplicate", "wrong_type", "vid", "vid_differs", "time", "time_ahead",
	"no_signals", "impossible", "not_allowed", "over_limit", "forgotten", "topic", "qos", "vehicle_limit", "not_stored",
	"no_room", "too_slow", "rate",
}

// refusal is the error that says why a sample was refused. Its text is for the
// sender: our words and our names, never a piece of the input.
type refusal struct {
	kind kind
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(k kind, text string) *refusal { return &refusal{k, text} }

// Refusals without a detail.
var (
	errNotUTF8     = refuse(malformed, "the line is not valid UTF-8")
	errNotObject   = refuse(malformed, `a sample is one JSON object, such as {"vid":"V","time":1795147200250,"signals":{"Vehicle.Speed":12.4}}`)
	errTrailing    = refuse(malformed, "there is more after the JSON object: send one object a line")
	errTruncated   = refuse(truncated, "the JSON ends early")
	errDeep        = refuse(overLimit, "the JSON is nested too deep")
	errNoVID       = refuse(badVID, "vid is missing")
	errLongVID     = refuse(badVID, "vid is longer than 256 characters")
	errOtherVID    = refuse(otherVID, "vid differs from the vehicle that the topic names")
	errNoTime      = refuse(badTime, "time is missing")
	errTime        = refuse(badTime, "time must be RFC 3339, such as 2026-11-20T04:00:00.250Z, or Unix milliseconds")
	errAncient     = refuse(badTime, "time is before the year 2000: as a number it counts milliseconds, not seconds")
	errAhead       = refuse(futureTime, "time is more than 30 s ahead of this service's clock")
	errNoSignals   = refuse(noSignals, "signals is missing")
	errVIDType     = refuse(wrongType, "vid must be a string")
	errTimeType    = refuse(wrongType, "time must be a string or a number")
	errSignalsType = refuse(wrongType, "signals must be an object")
	errCodesType   = refuse(wrongType, vehicle.DTCList.String()+" must be an array of strings")
	errManyCodes   = refuse(overLimit, vehicle.DTCList.String()+" has more than 255 trouble codes")
	errMILType     = refuse(wrongType, vehicle.MILOn.String()+" must be true or false")
	errPowerType   = refuse(wrongType, vehicle.LowVoltageSystemState.String()+" must be a string")
	errForgotten   = refuse(forgotten, "the vehicle was forgotten: nothing is taken in of it until the operator allows it again")
	errFull        = refuse(full, "a new vehicle, and the service has as many as it may have: "+
		"its operator can raise --max-vehicles")
	errNotAllowed = refuse(notAllowed, "not this source's vehicle")
)

// Refusals of a whole request or message.
var (
	errBodyTooLarge   = refuse(overLimit, "the body is larger than 8 MiB after decompression")
	errSampleTooLarge = refuse(overLimit, "a sample is larger than 64 KiB")
	errTooManySamples = refuse(overLimit, "there are more than 10,000 samples: send them in several batches")
)
