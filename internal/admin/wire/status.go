package wire

import "time"

// Status is the state of a node. What it does not know or have is null.
type Status struct {
	Version        string             `json:"version"`
	Ready          bool               `json:"ready"`
	Reason         string             `json:"reason"` // why the node is not ready
	FeedAgeSeconds *float64           `json:"feed_age_seconds"`
	Vehicles       *float64           `json:"vehicles"`
	VehiclesLimit  *float64           `json:"vehicles_limit"` // null: no limit
	Tokens         *float64           `json:"tokens"`         // including revoked and expired ones
	Sources        *float64           `json:"sources"`
	Operators      int                `json:"operators"`
	DataDirBytes   map[string]float64 `json:"data_dir_bytes"`
	DiskFreeBytes  *float64           `json:"disk_free_bytes"` // of the data directory's disk
	LastBackupAt   *time.Time         `json:"last_backup_at"`  // null: a search of the audit found none
	NeverBackedUp  bool               `json:"never_backed_up"` // the whole audit has no backup
	NewerRecords   []string           `json:"newer_records"`   // streams with records of a newer version
}
