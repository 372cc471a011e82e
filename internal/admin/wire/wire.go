// Package wire has the JSON of the admin API that is not a record of package ops. Secrets are shown
// only in the responses here.
package wire

import (
	"encoding/json/jsontext"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

type IssuedToken struct {
	ID          string          `json:"id"`
	AccessToken string          `json:"access_token"`
	Developer   string          `json:"developer"`
	Operations  []string        `json:"operations"`
	Vehicles    ops.VehicleList `json:"vehicles"`
	ExpiresAt   *time.Time      `json:"expires_at"`
	Rate        string          `json:"rate"`
}

type RotatedToken struct {
	ID           string      `json:"id"`
	AccessToken  string      `json:"access_token"`
	Developer    string      `json:"developer"`
	ExpiresAt    *time.Time  `json:"expires_at"`    // null: never; rotation does not change it
	EarlierUntil []time.Time `json:"earlier_until"` // ends of the replaced secrets that are still valid
}

type AddedSource struct {
	Name     string          `json:"name"`
	Key      string          `json:"key"`
	Vehicles ops.VehicleList `json:"vehicles"`
	Rate     string          `json:"rate"`      // of samples; empty or none: no limit
	Strict   bool            `json:"strict"`    // a sample with an unknown signal or an unused value is refused
	OnChange string          `json:"on_change"` // see [access.OnChange]; empty: the rules decide
	Format   string          `json:"format"`    // a preset or YAML; empty: the service's own

	TrustedCrowd bool `json:"trusted_crowd"` // see [access.Credential.Crowd]
}

type RotatedSource struct {
	Name         string      `json:"name"`
	Key          string      `json:"key"`
	EarlierUntil []time.Time `json:"earlier_until"`
}

type OperatorKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// RotatedAdminKey names the file of the new key, which is never shown.
type RotatedAdminKey struct {
	File string `json:"file"`
}

// Requests. A member that is left out is not changed. For ExpiresAt, see [Expiry].
type (
	TokenRequest struct {
		Developer  string           `json:"developer"`
		Operations []string         `json:"operations,omitzero"` // left out: all
		Vehicles   *ops.VehicleList `json:"vehicles,omitzero"`
		ExpiresAt  jsontext.Value   `json:"expires_at,omitzero"` // left out: access.DefaultTokenLife from now
		Rate       string           `json:"rate,omitzero"`
		Sandbox    bool             `json:"sandbox,omitzero"`
	}
	RotateRequest struct {
		OverlapSeconds *int64 `json:"overlap_seconds,omitzero"` // left out: access.DefaultOverlap
	}
	GrantRequest struct {
		Add    ops.VIDs `json:"add,omitzero"`
		Remove ops.VIDs `json:"remove,omitzero"`
	}
	TokenChange struct {
		Vehicles  *ops.VehicleList `json:"vehicles,omitzero"` // replaces the grant
		ExpiresAt jsontext.Value   `json:"expires_at,omitzero"`
		Rate      *string          `json:"rate,omitzero"` // empty: no limit
	}
	SourceChange struct {
		TokenChange // Rate is of samples; empty: the default; none: no limit

		Strict   *bool   `json:"strict,omitzero"`
		OnChange *string `json:"on_change,omitzero"` // empty: the rules decide
		Format   *string `json:"format,omitzero"`

		TrustedCrowd *bool `json:"trusted_crowd,omitzero"`
	}
	OperatorRequest struct {
		Name     string `json:"name"`
		ReadOnly bool   `json:"read_only,omitzero"`
	}
	SourceRequest struct {
		Name      string           `json:"name"`
		Vehicles  *ops.VehicleList `json:"vehicles"`
		ExpiresAt jsontext.Value   `json:"expires_at,omitzero"` // left out: never
		Rate      string           `json:"rate,omitzero"`       // as of SourceChange
		Strict    bool             `json:"strict,omitzero"`
		OnChange  string           `json:"on_change,omitzero"` // such as 15m
		Format    string           `json:"format,omitzero"`    // a preset, such as traccar, or YAML

		TrustedCrowd *bool `json:"trusted_crowd,omitzero"` // left out: true if vehicles is all
	}
	ForgetRoadsRequest struct {
		BBox string `json:"bbox"` // west,south,east,north in degrees
	}
)

// Expiry returns t as JSON or, for the zero time, null, which is never.
func Expiry(t time.Time) jsontext.Value {
	if t.IsZero() {
		return jsontext.Value("null")
	}
	return jsontext.Value(t.Format(`"` + time.RFC3339Nano + `"`))
}

type (
	TokenList struct {
		Tokens []ops.TokenSummary `json:"tokens"`
	}
	SourceList struct {
		Sources []ops.SourceSummary `json:"sources"`
	}
	OperatorList struct {
		Operators []ops.OperatorSummary `json:"operators"`
	}
	ForgottenRoads struct {
		Stretches int `json:"stretches"` // that this node knew in the box
	}
	Failure struct {
		Error string `json:"error"`
	}
)

// NodeSettings are settings of a running node. Version cannot be changed.
type NodeSettings struct {
	Version  string `json:"version,omitzero"`
	LogLevel string `json:"log_level,omitzero"` // debug, info, warn or error
	ReadOnly *bool  `json:"read_only,omitzero"` // telemetry is refused
}

const BackupType = "application/vnd.carstate.backup"

// BackupKeyHeader has the backup key of the service that made the backup, or [AnyBackup]. Without
// it, only a service's own backups are restored.
const BackupKeyHeader = "Carstate-Backup-Key"

const AnyBackup = "unauthenticated"

type (
	BackupKey struct {
		Key string `json:"key"`
	}
	// BuryRequest forgets vehicles again.
	BuryRequest struct {
		Receipts []access.ForgetReceipt `json:"receipts"`
	}
	BuryReport struct {
		Buried int `json:"buried"`
	}
	// RestoreLine is a line of the response: the progress or, last, the report or the error.
	RestoreLine struct {
		Done   int                   `json:"done"`
		Total  int                   `json:"total"`
		Report *access.RestoreReport `json:"report,omitzero"`
		Error  string                `json:"error,omitzero"`
	}
)

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
