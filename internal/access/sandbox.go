package access

// The vids of the reserved vehicles. On every installation, sandbox tokens get answers about these
// vehicles, without any telemetry. A real car may have the same vid; all other tokens get answers
// about the real car. docs/query-api.md describes the answers for each reserved vehicle.
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

// SandboxVehicles returns the reserved vehicles.
func SandboxVehicles() Vehicles {
	return VehicleSet(
		SandboxNormal, SandboxSlow, SandboxJam, SandboxAnomaly, SandboxHealthy,
		SandboxUnknown, SandboxStale, SandboxParked, SandboxCycle, SandboxRateLimited, SandboxUnavailable,
	)
}
