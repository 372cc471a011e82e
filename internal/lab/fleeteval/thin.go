package fleeteval

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"carstate/internal/vehicle"
)

// sends reports whether a car is among the share of the cars that send.
func sends(id vehicle.ID, share float64) bool { return fraction(id, 0) < share }

// phase is how much longer than every a car waits before it sends a second time, so
// that cars that begin together do not send together ever after.
func phase(id vehicle.ID, every time.Duration) time.Duration {
	return time.Duration(fraction(id, 1) * float64(every))
}

// fraction is a number from 0 to 1, exclusively, that the vehicle's name gives; which
// chooses one of several that do not depend on each other.
func fraction(id vehicle.ID, which int) float64 {
	sum := sha256.Sum256([]byte(id))
	const bits = 53 // that a float64 holds
	return float64(binary.BigEndian.Uint64(sum[8*which:])>>(64-bits)) / (1 << bits)
}
