package access

// The vids of the reserved vehicles. A sandbox token sees them on every installation, without any
// telemetry. A real car may have the same vid; real tokens then see the real car. docs/sandbox.md
// describes the answer for each.
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
