package query

import "example.org/carstate/internal/access"

// A request is for one operation, or for 0, none.
var operationNames = [...]string{
	0: "none", access.CarDrivingState: "car_driving_state", access.ThrottleSystem: "throttle_system",
}

// outcome is that of a token's usage, or, from invalidToken on, one that is not counted there.
type outcome access.Outcome

const (
	insufficientScope = outcome(access.InsufficientScope)
	rateLimited       = outcome(access.RateLimited)
	unavailable       = outcome(access.Unavailable)
	invalidRequest    = outcome(access.InvalidRequest)
)

const (
	invalidToken = outcome(access.Outcomes) + iota
	notFound
	methodNotAllowed
	documentation
	sandboxed // in metrics only, in place of the real outcome
	outcomeCount
)

// String returns the name in metrics, which is also the first word of a failure's message.
func (o outcome) String() string {
	switch access.Outcome(o) {
	case access.Expired, access.Revoked, access.Replaced:
		o = invalidToken
	}
	if o < invalidToken {
		return access.Outcome(o).String()
	}
	return [...]string{"invalid_token", "not_found", "method_not_allowed", "documentation", "sandbox"}[o-invalidToken]
}
