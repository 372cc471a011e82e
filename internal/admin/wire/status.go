package wire

import "time"

// Status is how a node is. A figure that the node does not know or does not have is null.
type Status struct {
	Version        string     `json:"version"`
	Ready          bool       `json:"ready"`
	Reason         string     `json:"reason"` // why it is not ready, else ""
	FeedAgeSeconds *float64   `json:"feed_age_seconds"`
	Vehicles       *float64   `json:"vehicles"`
	VehiclesLimit  *float64   `json:"vehicles_limit"` // nil: no bound
	Tokens         *float64   `json:"tokens"`         // with revoked and expired ones
	Sources        *float64   `json:"sources"`
	Operators      int        `json:"operators"`
	StoreBytes     *float64   `json:"store_bytes"`     // of the data directory's store
	DiskFreeBytes  *float64   `json:"disk_free_bytes"` // of the data directory's disk
	LastBackupAt   *time.Time `json:"last_backup_at"`  // nil: a search of the audit found none
	NewerRecords   []string   `json:"newer_records"`   // streams that hold records of a newer version
}
