package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Answer has the fields that a [DrivingAnswer] and a [ThrottleAnswer] have in common.
type Answer struct {
	VID    string
	Status Status
	// Reason is why there is no answer. It is "" if there is an answer, or if the service does not
	// give the reason.
	Reason Reason
	// AsOf is the time of the reading on which the answer is based, in whole seconds. It is the
	// zero time if the service does not give this time.
	AsOf time.Time
	// Age is the time from the reading on which the answer is based to the service's response, by
	// the service's clock. It is zero if AsOf is the zero time.
	Age time.Duration
	// RequestID is the service's ID of this request. Give it to the operator when you
	// report a problem.
	RequestID string
	// Record is the JSON object in the response that contains the answer, as the service sent it.
	Record json.RawMessage
}

// Answered reports whether the service has an answer, that is, whether Status is [Succeed]. If
// Answered returns false, State of the [DrivingAnswer], or System of the [ThrottleAnswer], has no
// meaning; with Status [Fail], it is "".
func (a Answer) Answered() bool { return a.Status == Succeed }

// DrivingAnswer is the answer of [Client.CarDrivingState].
type DrivingAnswer struct {
	Answer
	State DrivingState // "" with status Fail
}

// String returns the answer in one line, such as "traffic jam (3), as of 4 s ago".
func (a DrivingAnswer) String() string {
	return a.line(a.State.String(), string(a.State), a.State.Unknown())
}

// ThrottleAnswer is the answer of [Client.ThrottleSystem].
type ThrottleAnswer struct {
	Answer
	System ThrottleState // "" with status Fail
}

// String returns the answer in one line, such as "throttle normal (1), as of 4 s ago".
func (a ThrottleAnswer) String() string {
	return a.line(a.System.String(), string(a.System), a.System.Unknown())
}

func (a Answer) line(state, raw string, unknown bool) string {
	switch {
	case a.Status == Fail && a.Reason == "":
		return "no answer"
	case a.Status == Fail:
		return "no answer: " + a.Reason.String()
	case a.Status != Succeed:
		return "no answer: " + a.Status.String()
	}
	if !unknown {
		state += " (" + raw + ")"
	}
	if a.AsOf.IsZero() {
		return state
	}
	return state + ", as of " + ago(a.Age)
}

// ago returns an age as text, rounded down, such as "4 s ago".
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}

// Status says whether the service has an answer to a query. It is one of the constants of this
// type, or any other text that the service sent.
type Status string

// The outcomes of a query.
const (
	Fail    Status = "0" // there is no answer; see Reason
	Succeed Status = "1"
)

var statuses = map[Status]string{Fail: "fail", Succeed: "succeed"}

// Unknown reports whether the status is not one of the constants.
func (s Status) Unknown() bool { return statuses[s] == "" }

// String returns the name of the status, such as "succeed". For an unknown status, it returns the
// text that the service sent, in quotes after the words "unknown status".
func (s Status) String() string { return nameOf(s, statuses, "status") }

// DrivingState is how a vehicle drives. It is one of the constants of this type, or any other text
// that the service sent.
type DrivingState string

// The driving states.
const (
	NormalDriving DrivingState = "1"
	SlowDriving   DrivingState = "2"
	TrafficJam    DrivingState = "3"
)

var drivingStates = map[DrivingState]string{
	NormalDriving: "normal driving", SlowDriving: "slow driving", TrafficJam: "traffic jam",
}

// Unknown reports whether the state is not one of the constants. string(s) is the text that
// the service sent.
func (s DrivingState) Unknown() bool { return drivingStates[s] == "" }

// String returns the name of the state, such as "traffic jam". For an unknown state, it returns the
// text that the service sent, in quotes after the words "unknown driving state".
func (s DrivingState) String() string { return nameOf(s, drivingStates, "driving state") }

// ThrottleState is the state of a throttle system. It is one of the constants of this type, or any
// other text that the service sent.
type ThrottleState string

// The states of a throttle system.
const (
	ThrottleAnomaly ThrottleState = "0"
	ThrottleNormal  ThrottleState = "1"
)

var throttleStates = map[ThrottleState]string{ThrottleAnomaly: "throttle anomaly", ThrottleNormal: "throttle normal"}

// Unknown reports whether the state is not one of the constants. string(s) is the text that
// the service sent.
func (s ThrottleState) Unknown() bool { return throttleStates[s] == "" }

// String returns the name of the state, such as "throttle normal". For an unknown state, it returns
// the text that the service sent, in quotes after the words "unknown throttle state".
func (s ThrottleState) String() string { return nameOf(s, throttleStates, "throttle state") }

// Reason is why there is no answer. It is one of the constants of this type, or any other text that
// the service sent.
type Reason string

// The reasons why there is no answer.
const (
	// ReasonUnknown means that the vehicle is not known, or not granted to this token.
	ReasonUnknown Reason = "unknown"
	// ReasonStale means that the newest reading of the vehicle is too old.
	ReasonStale Reason = "stale"
	// ReasonNotDriving means that the vehicle is not driving.
	ReasonNotDriving Reason = "not_driving"
)

var reasons = map[Reason]string{
	ReasonUnknown:    "the vehicle is not known, or not granted to this token (unknown)",
	ReasonStale:      "the last reading is too old (stale)",
	ReasonNotDriving: "the vehicle is not driving (not_driving)",
}

// String returns an explanation of the reason. For a reason that is not one of the constants, it
// returns the text that the service sent, in quotes after the words "unknown reason".
func (r Reason) String() string { return nameOf(r, reasons, "reason") }

// nameOf returns the name of a value or, if it has none, "unknown", kind and the quoted value.
func nameOf[T ~string](value T, names map[T]string, kind string) string {
	if name := names[value]; name != "" {
		return name
	}
	return "unknown " + kind + " " + quote(string(value))
}

// quote returns a text from the service in quotes, with escapes for all characters that are not
// printable ASCII, so that it is safe for a terminal. Of a text of more than 64 bytes, it returns
// only the first 64, and an ellipsis after the quotes.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
