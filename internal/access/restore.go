package access

import "time"

// BackupInfo is the description that a backup contains of itself.
type BackupInfo struct {
	Version    string         `json:"version"` // version of the carstate that wrote it
	Began      time.Time      `json:"began"`
	Partitions int            `json:"partitions"`
	Records    int            `json:"records"`
	Kinds      map[string]int `json:"kinds"` // number of records, by kind
	// Authenticated says that the reader has the key with which the backup was authenticated.
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

// RestoreCount counts the records of one kind.
type RestoreCount struct {
	Restored int `json:"restored"`
	// Kept counts the records of the backup that were not restored because the service has a record
	// that takes precedence.
	Kept int `json:"kept"`
	// Forgotten counts the records that were left out because their vehicle is forgotten.
	Forgotten int `json:"forgotten"`
}
