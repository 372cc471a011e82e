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

// BackupTrust says which backups a restore accepts.
type BackupTrust struct {
	Key     string // backup key of the service that wrote it; the restoring service's own keys are accepted, too
	Anybody bool   // accept a backup of any origin, without authentication
}

// RestoreReport is the result of a restore.
type RestoreReport struct {
	Backup BackupInfo              `json:"backup"`
	Kinds  map[string]RestoreCount `json:"kinds"`
}

// RestoreCount says what became of the records of one kind in a backup.
type RestoreCount struct {
	Restored int `json:"restored"`
	// Kept counts the records of the backup that were not restored because the service kept its own
	// record instead, such as a newer state of the same vehicle.
	Kept int `json:"kept"`
	// Forgotten counts the records that were not restored because their vehicle was forgotten.
	Forgotten int `json:"forgotten"`
}
