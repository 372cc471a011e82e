package wire

import "time"

// Status describes the state of a node. A member is null if the node has no such value or does not
// know it.
type Status struct {
	Version        string     `json:"version"`
	Ready          bool       `json:"ready"`
	Reason         string     `json:"reason"` // why the node is not ready; empty if it is
	FeedAgeSeconds *float64   `json:"feed_age_seconds"`
	Vehicles       *float64   `json:"vehicles"`
	VehiclesLimit  *float64   `json:"vehicles_limit"` // null: no limit
	Tokens         *float64   `json:"tokens"`         // including revoked and expired ones
	Sources        *float64   `json:"sources"`
	Operators      int        `json:"operators"`
	StoreBytes     *float64   `json:"store_bytes"`     // size of the store in the data directory
	DiskFreeBytes  *float64   `json:"disk_free_bytes"` // free space on the data directory's disk
	LastBackupAt   *time.Time `json:"last_backup_at"`  // null: a search of the audit found none
	NeverBackedUp  bool       `json:"never_backed_up"` // the whole audit was searched and has no backup
	NewerRecords   []string   `json:"newer_records"`   // streams with records of a newer version
}
