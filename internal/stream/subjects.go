package stream

import (
	"strconv"
	"strings"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// Names of the streams.
const (
	Telemetry = "TELEMETRY"
	States    = "STATES"
	Tokens    = "TOKENS"
	Sources   = "SOURCES"
	Audit     = "AUDIT"
	Roads     = "ROADS"
)

// PartitionOf spreads vehicles over n partitions by FNV-1a, the same on every
// node and in every release: the partition is part of the stored subjects.
func PartitionOf(id vehicle.ID, n int) int { return partitionOf(string(id), n) }

func partitionOf(name string, n int) int {
	if n == 1 {
		return 0
	}
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	return int(h % uint64(n))
}

func telemetrySubject(p int) string { return "telemetry." + strconv.Itoa(p) }

func stateSubject(p int, id vehicle.ID) string {
	return "state." + strconv.Itoa(p) + "." + string(id)
}

func cursorSubject(p int) string { return "cursor." + strconv.Itoa(p) }

func memberSubject(name string) string { return "member." + name }

// heartbeatSubject is where a stream's heartbeat record lives, in that stream.
func heartbeatSubject(stream string) string { return "heartbeat." + strings.ToLower(stream) }

// paddingSubject is where a stream's padding goes, in that stream.
func paddingSubject(stream string) string {
	if stream == Telemetry {
		return "telemetry.padding"
	}
	return "padding." + strings.ToLower(stream)
}

// vidKeysSubject is where the keys are under which vids are hashed.
const vidKeysSubject = "tombstonekey"

func tombstoneSubject(h access.VehicleHash) string { return "tombstone." + h.String() }

// partitionOfCursor takes the partition from a cursor's subject.
func partitionOfCursor(subject string) (int, bool) {
	rest, ok := strings.CutPrefix(subject, "cursor.")
	p, err := strconv.Atoi(rest)
	return p, ok && err == nil
}

// vehicleOfState takes the vehicle from a state's subject.
func vehicleOfState(subject string) (vehicle.ID, bool) {
	rest, ok := strings.CutPrefix(subject, "state.")
	_, vid, ok2 := strings.Cut(rest, ".")
	return vehicle.ID(vid), ok && ok2
}
