package codec

import (
	"strconv"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
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

// Streams lists every stream, in the order in which they are created.
var Streams = []string{Telemetry, States, Tokens, Sources, Audit, Roads}

// PartitionOf returns the partition to which a vehicle or a tile of the map belongs, a number from
// 0 to n-1. It uses FNV-1a of the name. The result must be the same on every node and in every
// release, because the partition is part of stored subjects.
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

// TelemetrySubject returns the subject of a partition's samples.
func TelemetrySubject(p int) string { return "telemetry." + strconv.Itoa(p) }

// StateSubject returns the subject of a vehicle's state.
func StateSubject(p int, id vehicle.ID) string {
	return "state." + strconv.Itoa(p) + "." + string(id)
}

// CursorSubject returns the subject of a partition's cursor, which says up to which sequence the
// telemetry of the partition is folded into states.
func CursorSubject(p int) string { return "cursor." + strconv.Itoa(p) }

// MemberSubject returns the subject of a node's lease, which shows that the node is alive.
func MemberSubject(name string) string { return "member." + name }

// MemberOf returns the name of a node, given the subject of its lease.
func MemberOf(subject string) (name string, ok bool) {
	return strings.CutPrefix(subject, MemberSubject(""))
}

// HeartbeatSubject returns the subject of a stream's heartbeats. Each node writes heartbeats to the
// stream. When a node's own feed delivers one of the node's heartbeats, the time in the heartbeat
// shows how far the node's copy of the stream lags.
func HeartbeatSubject(stream string) string { return "heartbeat." + strings.ToLower(stream) }

// AuditSubject is the subject of all audit events.
const AuditSubject = "audit.event"

// RoadPrefix is the part of a road record's subject that precedes the name of the tile.
const RoadPrefix = "road."

// Matches reports whether subject matches pattern. Both consist of names separated by dots. The
// name * in the pattern matches any one name.
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

// VIDKeysSubject is the subject of the record with the keys under which the ids (vids) of forgotten
// vehicles are hashed.
const VIDKeysSubject = "tombstonekey"

// BackupKeySubject is the subject of the key that authenticates backups. No backup contains it.
const BackupKeySubject = "backupkey"

// TombstoneSubject returns the subject of the tombstone of the forgotten vehicle with the hash h.
func TombstoneSubject(h access.VehicleHash) string { return "tombstone." + h.String() }

// PartitionOfCursor returns the partition of a cursor, given the cursor's subject.
func PartitionOfCursor(subject string) (int, bool) {
	rest, ok := strings.CutPrefix(subject, "cursor.")
	p, err := strconv.Atoi(rest)
	return p, ok && err == nil && p >= 0
}

// VehicleOfState returns the vid of a state's vehicle, given the state's subject.
func VehicleOfState(subject string) (vehicle.ID, bool) {
	rest, ok := strings.CutPrefix(subject, "state.")
	_, vid, ok2 := strings.Cut(rest, ".")
	return vehicle.ID(vid), ok && ok2
}

// IsSet reports whether a subject is that of a set record, which lists a part of the vehicles of a
// large grant.
func IsSet(subject string) bool {
	kind, _, _ := strings.Cut(subject, ".")
	return strings.HasSuffix(kind, "set")
}

// ChunkSubject returns the subject of a piece of a checkpoint of partition p. Checkpoints use slots
// in turn.
func ChunkSubject(p, slot, piece int) string {
	return "chunk." + strconv.Itoa(p) + "." + strconv.Itoa(slot) + "." + strconv.Itoa(piece)
}
