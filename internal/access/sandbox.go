package access

// The reserved vehicles, about which sandbox tokens get answers on every installation. A real car
// may have the same vid. docs/query-api.md describes the answers.
const (
	SandboxNormal      = "SandboxNormal"
	SandboxSlow        = "SandboxSlow"
	SandboxJam         = "SandboxJam"
	SandboxAnomaly     = "SandboxAnomaly"
	SandboxHealthy     = "SandboxHealthy"
	SandboxUnknown     = "SandboxUnknown"
	SandboxStale       = "SandboxStale"
	SandboxParked      = "SandboxParked"
	SandboxCycle       = "SandboxCycle"
	SandboxRateLimited = "SandboxRateLimited"
	SandboxUnavailable = "SandboxUnavailable"
)

func SandboxVehicles() Vehicles {
	return VehicleSet(
		SandboxNormal, SandboxSlow, SandboxJam, SandboxAnomaly, SandboxHealthy,
		SandboxUnknown, SandboxStale, SandboxParked, SandboxCycle, SandboxRateLimited, SandboxUnavailable,
	)
}
