package access

import "time"

// BackupInfo is what a backup says of itself.
type BackupInfo struct {
	Version    string         `json:"version"` // of the carstate that wrote it
	Began      time.Time      `json:"began"`
	Partitions int            `json:"partitions"`
	Records    int            `json:"records"`
	Kinds      map[string]int `json:"kinds"` // records by kind
	// Authenticated says that the backup was made under a key that the reader has.
	Authenticated bool `json:"authenticated,omitzero"`
}

// BackupTrust says which backups a restore takes.
type BackupTrust struct {
	Key     string // of the service that made the backup; those of the restoring service count as well
	Anybody bool   // a backup of any origin: nothing is authenticated
}

// RestoreReport says what a restore did.
type RestoreReport struct {
	Backup BackupInfo              `json:"backup"`
	Kinds  map[string]RestoreCount `json:"kinds"`
}

// RestoreCount counts the records of one kind.
type RestoreCount struct {
	Restored int `json:"restored"`
	// Kept are those of which the service has a record that goes before the
	// backup's.
	Kept int `json:"kept"`
	// Forgotten are those left out because their vehicle is forgotten.
	Forgotten int `json:"forgotten"`
}
