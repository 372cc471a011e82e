// Package wire defines the JSON bodies of the admin API: all requests, and the responses that are
// not records of package ops. The server and its client share it.
package wire

import (
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

// IssuedToken is a new token with its secret, which is shown only here.
type IssuedToken struct {
	ID          string          `json:"id"`
	AccessToken string          `json:"access_token"`
	Developer   string          `json:"developer"`
	Operations  []string        `json:"operations"`
	Vehicles    ops.VehicleList `json:"vehicles"`
	ExpiresAt   *time.Time      `json:"expires_at"` // null: never
	Rate        string          `json:"rate"`       // empty: no limit
}

// RotatedToken is a token with its new secret, which is shown only here.
type RotatedToken struct {
	ID           string      `json:"id"`
	AccessToken  string      `json:"access_token"`
	Developer    string      `json:"developer"`
	ExpiresAt    *time.Time  `json:"expires_at"`    // null: never; rotation does not change it
	EarlierUntil []time.Time `json:"earlier_until"` // when the replaced secrets that are still valid will end
}

// AddedSource is a new source with its key, which is shown only here.
type AddedSource struct {
	Name     string          `json:"name"`
	Key      string          `json:"key"`
	Vehicles ops.VehicleList `json:"vehicles"`
	Rate     string          `json:"rate"`      // limit on samples; empty or none: no limit
	Strict   bool            `json:"strict"`    // a sample with an unknown signal or an unused value is refused
	OnChange string          `json:"on_change"` // how long a speed holds that is sent only when it changes; empty: recognized
	Format   string          `json:"format"`    // a preset or YAML; empty: the service's own

	TrustedCrowd bool `json:"trusted_crowd"` // each of its cars is a voice on roads; otherwise all are one
}

// RotatedSource is a source with its new key, which is shown only here.
type RotatedSource struct {
	Name         string      `json:"name"`
	Key          string      `json:"key"`
	EarlierUntil []time.Time `json:"earlier_until"` // when the replaced keys that are still valid will end
}

// OperatorKey is an operator with a new key, which is shown only here.
type OperatorKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// RotatedAdminKey names the file that holds the new admin key. The key itself is never shown.
type RotatedAdminKey struct {
	File string `json:"file"`
}

// Request bodies.
type (
	// TokenRequest is the body of a request to issue a token.
	TokenRequest struct {
		Developer  string           `json:"developer"`
		Operations []string         `json:"operations,omitzero"` // if left out: all
		Vehicles   *ops.VehicleList `json:"vehicles,omitzero"`
		ExpiresAt  Expiry           `json:"expires_at,omitzero"` // if left out: access.DefaultTokenLife from now
		Rate       string           `json:"rate,omitzero"`
		Sandbox    bool             `json:"sandbox,omitzero"`
	}
	// RotateRequest is the body of a request to give a token or a source a new secret.
	RotateRequest struct {
		OverlapSeconds *int64 `json:"overlap_seconds,omitzero"` // if left out: access.DefaultOverlap
	}
	// GrantRequest is the body of a request to add vehicles to a token's grant and to remove
	// others.
	GrantRequest struct {
		Add    ops.VIDs `json:"add,omitzero"`
		Remove ops.VIDs `json:"remove,omitzero"`
	}
	// TokenChange is the body of a request to change a token. A member that is left out is not
	// changed.
	TokenChange struct {
		Vehicles  *ops.VehicleList `json:"vehicles,omitzero"` // replaces the token's grant
		ExpiresAt Expiry           `json:"expires_at,omitzero"`
		Rate      *string          `json:"rate,omitzero"` // empty: no limit
	}
	// SourceChange is the body of a request to change a source. A member that is left out is not
	// changed.
	SourceChange struct {
		Vehicles  *ops.VehicleList `json:"vehicles,omitzero"` // replaces the source's grant
		ExpiresAt Expiry           `json:"expires_at,omitzero"`
		Rate      *string          `json:"rate,omitzero"` // limit on samples; empty: the default; none: no limit
		Strict    *bool            `json:"strict,omitzero"`
		OnChange  *string          `json:"on_change,omitzero"` // as in a source request; empty: recognized
		Format    *string          `json:"format,omitzero"`

		TrustedCrowd *bool `json:"trusted_crowd,omitzero"` // each of its cars is a voice on roads
	}
	// OperatorRequest is the body of a request to add an operator.
	OperatorRequest struct {
		Name     string `json:"name"`
		ReadOnly bool   `json:"read_only,omitzero"` // the operator can change nothing
	}
	// SourceRequest is the body of a request to add a source.
	SourceRequest struct {
		Name      string           `json:"name"`
		Vehicles  *ops.VehicleList `json:"vehicles"`
		ExpiresAt Expiry           `json:"expires_at,omitzero"` // if left out: never
		Rate      string           `json:"rate,omitzero"`       // limit on samples, as in a change
		Strict    bool             `json:"strict,omitzero"`     // a sample with an unknown signal or an unused value is refused
		OnChange  string           `json:"on_change,omitzero"`  // how long a speed holds that is sent only when it changes, such as 15m
		Format    string           `json:"format,omitzero"`     // a preset, such as traccar, or the YAML of a mapping

		TrustedCrowd *bool `json:"trusted_crowd,omitzero"` // each of its cars is a voice on roads; if left out: if vehicles is all
	}
	// ForgetRoadsRequest is the body of a request to forget what is known of roads.
	ForgetRoadsRequest struct {
		BBox string `json:"bbox"` // west,south,east,north in degrees
	}
)

// Response bodies that are not records of package ops.
type (
	// TokenList is a list of tokens.
	TokenList struct {
		Tokens []ops.TokenSummary `json:"tokens"`
	}
	// SourceList is a list of sources.
	SourceList struct {
		Sources []ops.SourceSummary `json:"sources"`
	}
	// OperatorList is a list of operators.
	OperatorList struct {
		Operators []ops.OperatorSummary `json:"operators"`
	}
	// ForgottenRoads is the response to a ForgetRoadsRequest.
	ForgottenRoads struct {
		Stretches int `json:"stretches"` // that this node knew in the box
	}
	// Failure is the response body of an error. It says what was wrong and what to do.
	Failure struct {
		Error string `json:"error"`
	}
)

// NodeSettings are the settings of a running node that operators can see and change. In a request,
// a member that is left out is not changed; Version must be left out.
type NodeSettings struct {
	Version  string `json:"version,omitzero"`
	LogLevel string `json:"log_level,omitzero"` // debug, info, warn or error
	ReadOnly *bool  `json:"read_only,omitzero"` // telemetry is refused
}

// BackupType is the media type of a backup.
const BackupType = "application/vnd.carstate.backup"

// BackupKeyHeader is a request header of the call that restores a backup. Its value is the backup
// key of the service that made the backup, or [AnyBackup]. Without this header, a service restores
// only its own backups.
const BackupKeyHeader = "Carstate-Backup-Key"

// AnyBackup is the value of [BackupKeyHeader] with which a restore accepts a backup of any origin,
// without authentication.
const AnyBackup = "unauthenticated"

type (
	// BackupKey is the key with which the service authenticates its backups.
	BackupKey struct {
		Key string `json:"key"`
	}
	// BuryRequest asks the service to forget vehicles again, for example after the restore of a
	// backup that was made before they were forgotten. It holds the receipts that the service
	// returned when it forgot the vehicles. A receipt identifies a vehicle by a keyed hash of its
	// vid.
	BuryRequest struct {
		Receipts []access.ForgetReceipt `json:"receipts"`
	}
	// BuryReport is the response to a BuryRequest. It holds the number of vehicles that the call
	// has forgotten; vehicles that were already forgotten are not included.
	BuryReport struct {
		Buried int `json:"buried"`
	}
	// RestoreLine is one line of the response to a restore. The last line has the report or the
	// error. Each line before it has the progress: how many of the records are done.
	RestoreLine struct {
		Done   int                   `json:"done"`
		Total  int                   `json:"total"`
		Report *access.RestoreReport `json:"report,omitzero"`
		Error  string                `json:"error,omitzero"`
	}
)
