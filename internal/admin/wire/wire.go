// Package wire is the JSON of the admin API: what its calls take, and what they answer
// with where that is no record of package ops. The server and its client share it.
package wire

import (
	"time"

	"carstate/internal/access"
	"carstate/internal/ops"
)

// IssuedToken is a new token with its secret, which is shown this once.
type IssuedToken struct {
	ID          string          `json:"id"`
	AccessToken string          `json:"access_token"`
	Developer   string          `json:"developer"`
	Operations  []string        `json:"operations"`
	Vehicles    ops.VehicleList `json:"vehicles"`
	ExpiresAt   *time.Time      `json:"expires_at"` // nil: never
	Rate        string          `json:"rate"`       // "" is no limit
}

// RotatedToken is a token with its new secret, which is shown this once.
type RotatedToken struct {
	ID           string      `json:"id"`
	AccessToken  string      `json:"access_token"`
	Developer    string      `json:"developer"`
	ExpiresAt    *time.Time  `json:"expires_at"`    // nil: never; rotation does not change it
	EarlierUntil []time.Time `json:"earlier_until"` // when the secrets end that were replaced
}

// AddedSource is a new source with its key, which is shown this once.
type AddedSource struct {
	Name     string          `json:"name"`
	Key      string          `json:"key"`
	Vehicles ops.VehicleList `json:"vehicles"`
	Rate     string          `json:"rate"`   // of samples; "" is no limit
	Strict   bool            `json:"strict"` // unknown signals refuse a sample
}

// RotatedSource is a source with its new key, which is shown this once.
type RotatedSource struct {
	Name         string      `json:"name"`
	Key          string      `json:"key"`
	EarlierUntil []time.Time `json:"earlier_until"` // when the keys end that were replaced
}

// OperatorKey is an operator with a new key, which is shown this once.
type OperatorKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// RotatedAdminKey says where the new admin key stands: nobody is shown it.
type RotatedAdminKey struct {
	File string `json:"file"`
}

// The bodies that the calls take.
type (
	// TokenRequest issues a token.
	TokenRequest struct {
		Developer  string           `json:"developer"`
		Operations []string         `json:"operations,omitzero"` // nil: all
		Vehicles   *ops.VehicleList `json:"vehicles,omitzero"`
		ExpiresAt  Expiry           `json:"expires_at,omitzero"` // not given: access.DefaultTokenLife from now
		Rate       string           `json:"rate,omitzero"`
		Sandbox    bool             `json:"sandbox,omitzero"`
	}
	// RotateRequest rotates a token or a source.
	RotateRequest struct {
		OverlapSeconds *int64 `json:"overlap_seconds,omitzero"` // nil: access.DefaultOverlap
	}
	// GrantRequest adds vehicles to a token and takes others away.
	GrantRequest struct {
		Add    ops.VIDs `json:"add,omitzero"`
		Remove ops.VIDs `json:"remove,omitzero"`
	}
	// TokenChange changes a token. What is left out stays.
	TokenChange struct {
		Vehicles  *ops.VehicleList `json:"vehicles,omitzero"` // in place of those that it sees
		ExpiresAt Expiry           `json:"expires_at,omitzero"`
		Rate      *string          `json:"rate,omitzero"` // "" is no limit
	}
	// SourceChange changes a source. What is left out stays.
	SourceChange struct {
		Vehicles  *ops.VehicleList `json:"vehicles,omitzero"` // in place of those that it speaks for
		ExpiresAt Expiry           `json:"expires_at,omitzero"`
		Rate      *string          `json:"rate,omitzero"` // of samples; "" is no limit
		Strict    *bool            `json:"strict,omitzero"`
	}
	// OperatorRequest adds an operator.
	OperatorRequest struct {
		Name string `json:"name"`
	}
	// SourceRequest adds a source.
	SourceRequest struct {
		Name      string           `json:"name"`
		Vehicles  *ops.VehicleList `json:"vehicles"`
		ExpiresAt Expiry           `json:"expires_at,omitzero"` // not given: never
		Rate      string           `json:"rate,omitzero"`       // of samples
		Strict    bool             `json:"strict,omitzero"`     // unknown signals refuse a sample
	}
)

// The bodies that the calls answer with, where they are not a record.
type (
	// TokenList lists tokens.
	TokenList struct {
		Tokens []ops.TokenSummary `json:"tokens"`
	}
	// SourceList lists sources.
	SourceList struct {
		Sources []ops.SourceSummary `json:"sources"`
	}
	// OperatorList lists operators.
	OperatorList struct {
		Operators []ops.OperatorSummary `json:"operators"`
	}
	// EventList lists what was audited.
	EventList struct {
		Events []access.Event `json:"events"`
		Older  uint64         `json:"older"` // the before of the next page; 0: there is none
	}
	// Failure says what was wrong and what to do.
	Failure struct {
		Error string `json:"error"`
	}
)

// NodeSettings are what operators see of one node while it runs. In a request, what is left out
// stays as it is, and so does Version.
type NodeSettings struct {
	Version  string `json:"version,omitzero"`
	LogLevel string `json:"log_level,omitzero"` // debug, info, warn or error
	ReadOnly *bool  `json:"read_only,omitzero"` // telemetry is refused
}

// BackupType is the media type of a backup.
const BackupType = "application/vnd.carstate.backup"

// BackupKeyHeader has the key of the service that made the backup of a restore, or [AnyBackup]. Without
// it, only the restoring service's own backups are taken.
const BackupKeyHeader = "Carstate-Backup-Key"

// AnyBackup in place of a key has nothing authenticated.
const AnyBackup = "unauthenticated"

type (
	// BackupKey is the key under which the service authenticates its backups.
	BackupKey struct {
		Key string `json:"key"`
	}
	// BuryRequest holds receipts of forgotten vehicles.
	BuryRequest struct {
		Receipts []access.ForgetReceipt `json:"receipts"`
	}
	// BuryReport says how many vehicles of receipts are forgotten now that
	// were not before.
	BuryReport struct {
		Buried int `json:"buried"`
	}
	// RestoreLine is one line of the answer to a restore.
	RestoreLine struct {
		Done   int                   `json:"done"`
		Total  int                   `json:"total"`
		Report *access.RestoreReport `json:"report,omitzero"`
		Error  string                `json:"error,omitzero"`
	}
)
