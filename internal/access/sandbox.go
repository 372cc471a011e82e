package access

// The reserved vehicles. A sandbox token sees them, on every installation and
// without any telemetry; a real car may bear such a name all the same, and real
// tokens see that one. docs/sandbox.md tells what each answers.
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

// SandboxVehicles are the reserved vehicles.
func SandboxVehicles() Vehicles {
	return VehicleSet(
		SandboxNormal, SandboxSlow, SandboxJam, SandboxAnomaly, SandboxHealthy,
		SandboxUnknown, SandboxStale, SandboxParked, SandboxCycle, SandboxRateLimited, SandboxUnavailable,
	)
}
