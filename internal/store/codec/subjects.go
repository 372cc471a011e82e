package codec

import (
	"path"
	"strconv"
	"strings"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

const (
	Telemetry = "TELEMETRY"
	States    = "STATES"
	Tokens    = "TOKENS"
	Sources   = "SOURCES"
	Audit     = "AUDIT"
	Roads     = "ROADS"
)

const (
	AuditSubject     = "audit.event"
	RoadPrefix       = "road."
	VIDKeysSubject   = "tombstonekey"
	BackupKeySubject = "backupkey" // its record is in no backup
)

var Streams = []string{Telemetry, States, Tokens, Sources, Audit, Roads}

// PartitionOf returns the partition of a vehicle or a tile, by FNV-1a. It is part of stored
// subjects, so it must be the same on every node and in every release.
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

func TelemetrySubject(p int) string                { return "telemetry." + strconv.Itoa(p) }
func CursorSubject(p int) string                   { return "cursor." + strconv.Itoa(p) }
func MemberSubject(name string) string             { return "member." + name }
func TombstoneSubject(h access.VehicleHash) string { return "tombstone." + h.String() }

// StateSubject is the subject of a state in a backup.
func StateSubject(p int, id vehicle.ID) string { return "state." + strconv.Itoa(p) + "." + string(id) }

func MemberOf(subject string) (name string, ok bool) {
	return strings.CutPrefix(subject, MemberSubject(""))
}

// When the feed of stream delivers a node's heartbeat, the time in it shows how far the feed lags.
func HeartbeatSubject(stream string) string { return "heartbeat." + strings.ToLower(stream) }

func Matches(pattern, subject string) bool {
	ok, _ := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(subject, ".", "/"))
	return ok
}

func PartitionOfCursor(subject string) (int, bool) {
	rest, ok := strings.CutPrefix(subject, "cursor.")
	p, err := strconv.Atoi(rest)
	return p, ok && err == nil && p >= 0
}

func VehicleOfState(subject string) (vehicle.ID, bool) {
	rest, ok := strings.CutPrefix(subject, "state.")
	_, vid, ok2 := strings.Cut(rest, ".")
	return vehicle.ID(vid), ok && ok2
}

// Operators are in SOURCES, so that one can be removed even if TOKENS is full of usage.
func StreamOf(subject string) string {
	if strings.HasPrefix(subject, "token") {
		return Tokens
	}
	return Sources
}

func IsSet(subject string) bool {
	kind, _, _ := strings.Cut(subject, ".")
	return strings.HasSuffix(kind, "set")
}

func ChunkSubject(p, slot, piece int) string {
	return "chunk." + strconv.Itoa(p) + "." + strconv.Itoa(slot) + "." + strconv.Itoa(piece)
}
