package query

import (
	"time"

	"carstate/internal/access"
	"carstate/internal/fleet"
	"carstate/internal/vehicle"
)

// The sandbox: what a sandbox token is answered. It has no telemetry and looks
// at no real vehicle; a developer gets from it every answer that the service
// can give, byte for byte as the real one. docs/sandbox.md has the table.

// sandbox is what is known of a reserved vehicle at now: for each operation an answer
// as new as can be, or why there is none.
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

// sandboxRate is the policy that a token without a limit is told when it asks
// for the vehicle that is always over it.
var sandboxRate = access.Rate{Calls: 60, Window: time.Minute}

// pretendRate answers for the reserved vehicle that is always over the rate. As
// with any such refusal, nothing of the budget is used up.
func (w *response) pretendRate(rate access.Rate) {
	if !rate.Limited() {
		rate = sandboxRate
	}
	w.setPolicy(tokenPolicy, rate)
	next := rate.Window / time.Duration(rate.Calls)
	w.setRemaining(tokenPolicy, rate, 0, next)
	w.failRate(rate, next)
}
