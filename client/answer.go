package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Answer is common to a [DrivingAnswer] and a [ThrottleAnswer].
type Answer struct {
	VID    string
	Status Status
	// Reason is why there is no answer, or "" if the service does not say.
	Reason Reason
	// AsOf is the time of the reading behind the answer, in whole seconds; zero: unknown.
	AsOf time.Time
	// Age is how old that reading was when the service answered, by its clock.
	Age time.Duration
	// RequestID identifies the request, for a report to the operator.
	RequestID string
	// Record is the JSON of the answer, as sent.
	Record json.RawMessage
}

// Answered reports whether Status is [Succeed].
func (a Answer) Answered() bool { return a.Status == Succeed }

// DrivingAnswer is the answer of [Client.CarDrivingState].
type DrivingAnswer struct {
	Answer
	State DrivingState // "" with status Fail
}

// String returns one line, such as "traffic jam (3), as of 4 s ago".
func (a DrivingAnswer) String() string {
	return a.line(a.State.String(), string(a.State), a.State.Unknown())
}

// ThrottleAnswer is the answer of [Client.ThrottleSystem].
type ThrottleAnswer struct {
	Answer
	System ThrottleState // "" with status Fail
}

// String returns one line, such as "throttle normal (1), as of 4 s ago".
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

// Status says whether there is an answer.
type Status string

const (
	Fail    Status = "0" // there is no answer; see Reason
	Succeed Status = "1"
)

var statuses = map[Status]string{Fail: "fail", Succeed: "succeed"}

// Unknown reports whether s is not one of the constants.
func (s Status) Unknown() bool { return statuses[s] == "" }

// String returns "succeed", or the quoted status if it is unknown.
func (s Status) String() string { return nameOf(s, statuses, "status") }

// DrivingState is how a vehicle drives. Other texts are possible.
type DrivingState string

const (
	NormalDriving DrivingState = "1"
	SlowDriving   DrivingState = "2"
	TrafficJam    DrivingState = "3"
)

var drivingStates = map[DrivingState]string{
	NormalDriving: "normal driving", SlowDriving: "slow driving", TrafficJam: "traffic jam",
}

// Unknown reports whether s is not one of the constants.
func (s DrivingState) Unknown() bool { return drivingStates[s] == "" }

// String returns a name, such as "traffic jam", or an unknown state in quotes.
func (s DrivingState) String() string { return nameOf(s, drivingStates, "driving state") }

// ThrottleState is the state of a throttle system. Other texts are possible.
type ThrottleState string

const (
	ThrottleAnomaly ThrottleState = "0"
	ThrottleNormal  ThrottleState = "1"
)

var throttleStates = map[ThrottleState]string{ThrottleAnomaly: "throttle anomaly", ThrottleNormal: "throttle normal"}

// Unknown reports whether s is not one of the constants.
func (s ThrottleState) Unknown() bool { return throttleStates[s] == "" }

// String returns a name, such as "throttle normal", or an unknown state in quotes.
func (s ThrottleState) String() string { return nameOf(s, throttleStates, "throttle state") }

// Reason is why there is no answer. Other texts are possible.
type Reason string

const (
	// ReasonUnknown: the vehicle is not known, or not granted to this token.
	ReasonUnknown Reason = "unknown"
	// ReasonStale: the newest reading is too old.
	ReasonStale Reason = "stale"
	// ReasonNotDriving: the vehicle is not driving.
	ReasonNotDriving Reason = "not_driving"
)

var reasons = map[Reason]string{
	ReasonUnknown:    "the vehicle is not known, or not granted to this token (unknown)",
	ReasonStale:      "the last reading is too old (stale)",
	ReasonNotDriving: "the vehicle is not driving (not_driving)",
}

// String explains the reason, or quotes it if it is unknown.
func (r Reason) String() string { return nameOf(r, reasons, "reason") }

func nameOf[T ~string](value T, names map[T]string, kind string) string {
	if name := names[value]; name != "" {
		return name
	}
	return "unknown " + kind + " " + quote(string(value))
}

// quote makes a text from the service safe for a terminal.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
