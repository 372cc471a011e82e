package admin

import (
	"time"

	"carstate/internal/access"
)

// IssuedToken is a new token with its secret, which is shown this once.
type IssuedToken struct {
	ID          string      `json:"id"`
	AccessToken string      `json:"access_token"`
	Developer   string      `json:"developer"`
	Operations  []string    `json:"operations"`
	Vehicles    VehicleList `json:"vehicles"`
	ExpiresAt   *time.Time  `json:"expires_at"` // nil: never
	Rate        string      `json:"rate"`       // "" is no limit
}

// TokenSummary is a token as listings show it.
type TokenSummary struct {
	ID           string       `json:"id"`
	Developer    string       `json:"developer"`
	Operations   []string     `json:"operations"`
	VehicleCount VehicleCount `json:"vehicle_count"`
	Rate         string       `json:"rate"`
	CreatedAt    time.Time    `json:"created_at"`
	ExpiresAt    *time.Time   `json:"expires_at"`   // nil: never
	RevokedAt    *time.Time   `json:"revoked_at"`   // nil: not revoked
	LastUsedAt   *time.Time   `json:"last_used_at"` // to the minute; nil: not used that this node knows of
	Sandbox      bool         `json:"sandbox"`
}

// TokenRecord is all that is known of a token.
type TokenRecord struct {
	TokenSummary
	EarlierUntil      []time.Time `json:"earlier_until"`       // when the secrets end that rotation replaced
	LastRefusedAt     *time.Time  `json:"last_refused_at"`     // nil: never
	LastRefusedReason string      `json:"last_refused_reason"` // "" if never
	Usage             TokenUsage  `json:"usage"`
	Vehicles          VehicleList `json:"vehicles"`
}

// TokenUsage is how often a token was used, on all nodes together. Days begin at
// midnight UTC.
type TokenUsage struct {
	Today      CallCounts `json:"today"`
	Last30Days CallCounts `json:"last_30_days"` // today included
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
	Name     string      `json:"name"`
	Key      string      `json:"key"`
	Vehicles VehicleList `json:"vehicles"`
}

// SourceSummary is a source as listings show it.
type SourceSummary struct {
	Name         string       `json:"name"`
	VehicleCount VehicleCount `json:"vehicle_count"`
	CreatedAt    time.Time    `json:"created_at"`
	ExpiresAt    *time.Time   `json:"expires_at"` // nil: never
	RemovedAt    *time.Time   `json:"removed_at"` // nil: not removed
}

// SourceRecord is all that is known of a source.
type SourceRecord struct {
	SourceSummary
	EarlierUntil []time.Time `json:"earlier_until"` // when the keys end that rotation replaced
	Vehicles     VehicleList `json:"vehicles"`
}

// RotatedSource is a source with its new key, which is shown this once.
type RotatedSource struct {
	Name         string      `json:"name"`
	Key          string      `json:"key"`
	EarlierUntil []time.Time `json:"earlier_until"` // when the keys end that were replaced
}

// OperatorSummary is an operator as listings show it.
type OperatorSummary struct {
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	RotatedAt *time.Time `json:"rotated_at"` // nil: the key is the first
	RemovedAt *time.Time `json:"removed_at"` // nil: not removed
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
	tokenRequest struct {
		Developer  string       `json:"developer"`
		Operations []string     `json:"operations,omitzero"` // nil: all
		Vehicles   *VehicleList `json:"vehicles,omitzero"`
		ExpiresAt  expiry       `json:"expires_at,omitzero"` // not given: access.DefaultTokenLife from now
		Rate       string       `json:"rate,omitzero"`
		Sandbox    bool         `json:"sandbox,omitzero"`
	}
	rotateRequest struct {
		OverlapSeconds *int64 `json:"overlap_seconds,omitzero"` // nil: access.DefaultOverlap
	}
	grantRequest struct {
		Add    vids `json:"add,omitzero"`
		Remove vids `json:"remove,omitzero"`
	}
	operatorRequest struct {
		Name string `json:"name"`
	}
	sourceRequest struct {
		Name      string       `json:"name"`
		Vehicles  *VehicleList `json:"vehicles"`
		ExpiresAt expiry       `json:"expires_at,omitzero"` // not given: never
	}
)

// The bodies that the calls answer with, where they are not a record.
type (
	tokenList struct {
		Tokens []TokenSummary `json:"tokens"`
	}
	sourceList struct {
		Sources []SourceSummary `json:"sources"`
	}
	operatorList struct {
		Operators []OperatorSummary `json:"operators"`
	}
	eventList struct {
		Events []access.Event `json:"events"`
	}
	failure struct {
		Error string `json:"error"`
	}
)

// orNil is how the wire spells a time that is not set.
func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
