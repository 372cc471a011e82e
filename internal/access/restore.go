package access

import "time"

// BackupInfo describes the contents of a backup, as read from the backup itself.
type BackupInfo struct {
	Version    string         `json:"version"` // version of the carstate that wrote it
	Began      time.Time      `json:"began"`
	Partitions int            `json:"partitions"`
	Records    int            `json:"records"`
	Kinds      map[string]int `json:"kinds"` // number of records, by kind
	// Authenticated is set if a backup key of the program that read the backup authenticates it.
	Authenticated bool `json:"authenticated,omitzero"`
}

// RestoreOptions says which backups a restore accepts, and what it does.
type RestoreOptions struct {
	Key     string // backup key of the service that wrote it; the restoring service's own keys are accepted, too
	Anybody bool   // accept a backup of any origin, without authentication
	Compare bool   // change nothing, and report how the backup and the service differ
}

// RestoreReport is the result of a restore or of a comparison.
type RestoreReport struct {
	Backup BackupInfo              `json:"backup"`
	Kinds  map[string]RestoreCount `json:"kinds"`
}

// RestoreCount says what became of the records of one kind in a backup, or how they differ from
// those of the service.
type RestoreCount struct {
	Restored int `json:"restored,omitzero"`
	// Kept counts the records that the service had already, after an interrupted restore.
	Kept int `json:"kept,omitzero"`
	// Forgotten counts the records of forgotten vehicles, which are not restored.
	Forgotten int `json:"forgotten,omitzero"`

	// The fields below are of a comparison. A state is newer or older by the time of its last sample.
	Equal     int `json:"equal,omitzero"`
	Newer     int `json:"newer,omitzero"` // in the service than in the backup
	Older     int `json:"older,omitzero"`
	Different int `json:"different,omitzero"`
	Missing   int `json:"missing,omitzero"` // in the service
}

// Plus returns the sums of n and m.
func (n RestoreCount) Plus(m RestoreCount) RestoreCount {
	return RestoreCount{
		n.Restored + m.Restored, n.Kept + m.Kept, n.Forgotten + m.Forgotten,
		n.Equal + m.Equal, n.Newer + m.Newer, n.Older + m.Older, n.Different + m.Different, n.Missing + m.Missing,
	}
}
