package codec

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

// Streams lists every stream, in the order in which they are made.
var Streams = []string{Telemetry, States, Tokens, Sources, Audit, Roads}

// PartitionOf spreads names of vehicles, or of tiles of roads, over n partitions by
// FNV-1a, the same on every node and in every release: the partition is part of the
// stored subjects.
func PartitionOf[Name ~string](name Name, n int) int {
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

// TelemetrySubject is where the samples of a partition lie.
func TelemetrySubject(p int) string { return "telemetry." + strconv.Itoa(p) }

// StateSubject is where the state of a vehicle lies.
func StateSubject(p int, id vehicle.ID) string {
	return "state." + strconv.Itoa(p) + "." + string(id)
}

// CursorSubject is where a partition's cursor lies.
func CursorSubject(p int) string { return "cursor." + strconv.Itoa(p) }

// MemberSubject is where the lease of a node lies.
func MemberSubject(name string) string { return "member." + name }

// MemberOf takes the name of the node from a lease's subject.
func MemberOf(subject string) (name string, ok bool) {
	return strings.CutPrefix(subject, MemberSubject(""))
}

// HeartbeatSubject is where a stream's heartbeat record lives, in that stream.
func HeartbeatSubject(stream string) string { return "heartbeat." + strings.ToLower(stream) }

// AuditSubject is where every event of the audit goes.
const AuditSubject = "audit.event"

// RoadPrefix precedes the name of a tile in the subject of its profiles.
const RoadPrefix = "road."

// Matches reports whether a subject is of a pattern, in which * stands for one name.
func Matches(pattern, subject string) bool {
	for {
		want, patternLeft, more := strings.Cut(pattern, ".")
		name, subjectLeft, is := strings.Cut(subject, ".")
		if want != "*" && want != name || more != is {
			return false
		}
		if !more {
			return true
		}
		pattern, subject = patternLeft, subjectLeft
	}
}

// VIDKeysSubject is where the keys are under which vids are hashed.
const VIDKeysSubject = "tombstonekey"

// BackupKeySubject is where the key lies under which backups are authenticated. It is in no backup.
const BackupKeySubject = "backupkey"

// TombstoneSubject is where the tombstone of a forgotten vehicle lies.
func TombstoneSubject(h access.VehicleHash) string { return "tombstone." + h.String() }

// PartitionOfCursor takes the partition from a cursor's subject.
func PartitionOfCursor(subject string) (int, bool) {
	rest, ok := strings.CutPrefix(subject, "cursor.")
	p, err := strconv.Atoi(rest)
	return p, ok && err == nil
}

// VehicleOfState takes the vehicle from a state's subject.
func VehicleOfState(subject string) (vehicle.ID, bool) {
	rest, ok := strings.CutPrefix(subject, "state.")
	_, vid, ok2 := strings.Cut(rest, ".")
	return vehicle.ID(vid), ok && ok2
}
