package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Answer is what the answers to both operations have in common.
type Answer struct {
	VID    string
	Status Status
	// Reason is why there is no answer, if the service says so.
	Reason Reason
	// AsOf is the time of the reading that the answer stands on, to the
	// second; zero if the service does not say.
	AsOf time.Time
	// Age is how old that reading was when the service answered, by the
	// service's own clock; zero without AsOf.
	Age time.Duration
	// RequestID is how the service calls this request. Tell it to the
	// operator when something is wrong.
	RequestID string
	// Record is the record as it came, a JSON object.
	Record json.RawMessage
}

// Answered reports whether the service knows the answer. If it does not, the
// state is empty and means nothing.
func (a Answer) Answered() bool { return a.Status == Succeed }

// DrivingAnswer is the answer of [Client.CarDrivingState].
type DrivingAnswer struct {
	Answer
	State DrivingState // "" with status Fail
}

// String is the answer in one line, such as "traffic jam (3), as of 4 s ago".
func (a DrivingAnswer) String() string {
	return a.line(a.State.String(), string(a.State), a.State.Unknown())
}

// ThrottleAnswer is the answer of [Client.ThrottleSystem].
type ThrottleAnswer struct {
	Answer
	System ThrottleState // "" with status Fail
}

// String is the answer in one line, such as "throttle normal (1), as of 4 s ago".
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

// ago tells an age to people, rounded down.
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

// Status is the outcome of a query. Texts other than these two are kept as they
// came.
type Status string

// The outcomes of a query.
const (
	Fail    Status = "0" // there is no answer; see Reason
	Succeed Status = "1"
)

var statuses = map[Status]string{Fail: "fail", Succeed: "succeed"}

// Unknown reports that the status is none that the interface documents.
func (s Status) Unknown() bool { return statuses[s] == "" }

// String names the status.
func (s Status) String() string { return nameOf(s, statuses, "status") }

// DrivingState is how a vehicle drives. Texts other than these three are kept as
// they came.
type DrivingState string

// The driving states.
const (
	NormalDriving DrivingState = "1"
	SlowDriving   DrivingState = "2"
	TrafficJam    DrivingState = "3"
)

var drivingStates = map[DrivingState]string{NormalDriving: "normal driving", SlowDriving: "slow driving", TrafficJam: "traffic jam"}

// Unknown reports that the state is none that the interface documents; what the
// service sent is string(s).
func (s DrivingState) Unknown() bool { return drivingStates[s] == "" }

// String names the state.
func (s DrivingState) String() string { return nameOf(s, drivingStates, "driving state") }

// ThrottleState is how a throttle system is. Texts other than these two are kept
// as they came.
type ThrottleState string

// The states of a throttle system.
const (
	ThrottleAnomaly ThrottleState = "0"
	ThrottleNormal  ThrottleState = "1"
)

var throttleStates = map[ThrottleState]string{ThrottleAnomaly: "throttle anomaly", ThrottleNormal: "throttle normal"}

// Unknown reports that the state is none that the interface documents; what the
// service sent is string(s).
func (s ThrottleState) Unknown() bool { return throttleStates[s] == "" }

// String names the state.
func (s ThrottleState) String() string { return nameOf(s, throttleStates, "throttle state") }

// Reason is why there is no answer. Texts other than these three are kept as
// they came.
type Reason string

// The reasons.
const (
	// ReasonUnknown: the vehicle is not known, or not granted to this token.
	ReasonUnknown Reason = "unknown"
	// ReasonStale: what is known of the vehicle is too old.
	ReasonStale Reason = "stale"
	// ReasonNotDriving: the vehicle is not driving.
	ReasonNotDriving Reason = "not_driving"
)

var reasons = map[Reason]string{
	ReasonUnknown:    "the vehicle is not known, or not granted to this token (unknown)",
	ReasonStale:      "the last reading is too old (stale)",
	ReasonNotDriving: "the vehicle is not driving (not_driving)",
}

// String explains the reason.
func (r Reason) String() string { return nameOf(r, reasons, "reason") }

// nameOf names a value, which may be none that is documented.
func nameOf[T ~string](value T, names map[T]string, kind string) string {
	if name := names[value]; name != "" {
		return name
	}
	return "unknown " + kind + " " + quote(string(value))
}

// quote makes text from elsewhere safe for a terminal, and short.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
