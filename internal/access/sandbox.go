package access

// A sandbox token gets answers about these vehicles, as in docs/query-api.md. A real car may have
// the same vid.
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
