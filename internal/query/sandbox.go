package query

import (
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

// The sandbox gives every answer of the service, byte for byte, and never looks at a real vehicle.
// docs/query-api.md lists its vehicles.

func sandbox(vid []byte, now time.Time) (known fleet.Answer, drives, throttles vehicle.Outcome) {
	pace, system := driving.Normal, throttle.Normal
	switch string(vid) {
	case access.SandboxNormal, access.SandboxHealthy:
	case access.SandboxSlow:
		pace = driving.Slow
	case access.SandboxJam:
		pace = driving.Jam
	case access.SandboxAnomaly:
		system = throttle.Anomaly
	case access.SandboxStale:
		return fleet.Answer{}, vehicle.Stale, vehicle.Stale
	case access.SandboxParked:
		drives = vehicle.NotDriving
	case access.SandboxCycle:
		minute := now.Unix() / 60
		pace = [...]driving.State{driving.Normal, driving.Slow, driving.Jam}[minute%3]
		system = [...]throttle.System{throttle.Normal, throttle.Anomaly}[minute%2]
	default:
		return fleet.Answer{}, vehicle.Unknown, vehicle.Unknown
	}
	at := signal.At(now)
	return fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: pace, Time: at},
		Throttle: vehicle.ThrottleVerdict{System: system, Time: at},
	}, drives, vehicle.Answered
}

// sandboxRate is what SandboxRateLimited tells a token without a rate limit.
var sandboxRate = access.Rate{Calls: 60, Window: time.Minute}

// pretendRate uses up none of the token's budget.
func (w *response) pretendRate(rate access.Rate) {
	if !rate.Limited() {
		rate = sandboxRate
	}
	next := rate.Window / time.Duration(rate.Calls)
	w.setRate(rate, 0, next)
	w.tooManyCalls(rate, next)
}
