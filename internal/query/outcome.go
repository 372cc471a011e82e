package query

import (
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// A request is for one operation, or for 0, none.
var operationNames = [...]string{
	0: "none", access.CarDrivingState: "car_driving_state", access.ThrottleSystem: "throttle_system",
}

type outcome uint8

const (
	answered               = outcome(vehicle.Answered)
	unknownVehicle         = outcome(vehicle.Unknown)
	stale                  = outcome(vehicle.Stale)
	notDriving             = outcome(vehicle.NotDriving)
	invalidRequest outcome = iota
	invalidToken
	insufficientScope
	notFound
	methodNotAllowed
	rateLimited
	unavailable
	documentation
	sandboxed // in metrics only, in place of the real outcome
	outcomeCount
)

// String returns the name in metrics, which is also the first word of a failure's message.
func (o outcome) String() string {
	return [...]string{
		"answered", "unknown", "stale", "not_driving",
		"invalid_request", "invalid_token", "insufficient_scope", "not_found",
		"method_not_allowed", "rate_limited", "unavailable",
		"documentation", "sandbox",
	}[o]
}

// usageOf says how a call with a valid token is counted in its usage.
var usageOf = [outcomeCount]access.Outcome{
	answered:          access.Answered,
	unknownVehicle:    access.Unknown,
	stale:             access.Stale,
	notDriving:        access.NotDriving,
	insufficientScope: access.InsufficientScope,
	rateLimited:       access.RateLimited,
	unavailable:       access.Unavailable,
	invalidRequest:    access.InvalidRequest,
}
