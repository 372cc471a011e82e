package query

import (
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/vehicle"
)

// The sandbox answers sandbox tokens. It has no telemetry and never looks at a real vehicle. For a
// developer, it gives every answer of the service, byte for byte the same as the real answer.
// docs/query-api.md has the table of its vehicles.

// sandbox returns invented verdicts, of the time now, about one of the sandbox's vehicles. drives
// and throttles are Answered, or why there is no such verdict. For any other vid, both are Unknown.
func sandbox(vid []byte, now time.Time) (known fleet.Answer, drives, throttles vehicle.Outcome) {
	driving, throttle := vehicle.NormalDriving, vehicle.ThrottleNormal
	switch string(vid) {
	case access.SandboxNormal, access.SandboxHealthy:
	case access.SandboxSlow:
		driving = vehicle.SlowDriving
	case access.SandboxJam:
		driving = vehicle.TrafficJam
	case access.SandboxAnomaly:
		throttle = vehicle.ThrottleAnomaly
	case access.SandboxStale:
		return fleet.Answer{}, vehicle.Stale, vehicle.Stale
	case access.SandboxParked:
		drives = vehicle.NotDriving
	case access.SandboxCycle:
		minute := now.Unix() / 60
		driving = [...]vehicle.DrivingState{vehicle.NormalDriving, vehicle.SlowDriving, vehicle.TrafficJam}[minute%3]
		throttle = [...]vehicle.ThrottleSystem{vehicle.ThrottleNormal, vehicle.ThrottleAnomaly}[minute%2]
	default:
		return fleet.Answer{}, vehicle.Unknown, vehicle.Unknown
	}
	at := vehicle.At(now)
	return fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: driving, Time: at},
		Throttle: vehicle.ThrottleVerdict{System: throttle, Time: at},
	}, drives, vehicle.Answered
}

// sandboxRate is the rate limit that a sandbox token without a rate limit sees in the answer about
// the vehicle SandboxRateLimited.
var sandboxRate = access.Rate{Calls: 60, Window: time.Minute}

// pretendRate turns the response into the answer about the vehicle SandboxRateLimited: a 429, as if
// the token were over its rate. It uses up none of the token's budget.
func (w *response) pretendRate(rate access.Rate) {
	if !rate.Limited() {
		rate = sandboxRate
	}
	next := rate.Window / time.Duration(rate.Calls)
	w.setRate(rate, 0, next)
	w.tooManyCalls(rate, next)
}
