package access

import (
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// Token is the record of who may read. It holds no secret.
type Token struct {
	ID         string    // public name of the token, cstid…
	Hash       Hash      // of the secret
	Earlier    []Earlier // secrets that rotation replaced, oldest first; the last few that have ended included
	Sandbox    bool      // it sees the reserved vehicles and no real ones
	Developer  string
	Operations Operations
	Vehicles   Vehicles
	Rate       Rate
	Created    time.Time
	Expires    time.Time // zero: never
	Revoked    time.Time // zero: not revoked
}

// DefaultTokenLife is how long a token lives if nobody says otherwise.
const DefaultTokenLife = 90 * 24 * time.Hour

// TokenRequest is what an operator says when issuing a token.
type TokenRequest struct {
	Developer  string
	Operations Operations
	Vehicles   Vehicles
	Rate       Rate
	Expires    time.Time // zero: never
	Sandbox    bool      // Vehicles is then not looked at: they are the reserved ones
}

// Issue makes a token and the secret to be shown once.
func Issue(r TokenRequest, now time.Time) (Token, string, error) {
	if err := checkName("a developer's name", r.Developer); err != nil {
		return Token{}, "", err
	}
	if r.Operations == 0 || !AllOperations.Has(r.Operations) {
		return Token{}, "", errors.New("a token needs at least one operation")
	}
	if !r.Expires.IsZero() && !r.Expires.After(now) {
		return Token{}, "", errors.New("a token cannot expire before it is issued")
	}
	if r.Sandbox {
		r.Vehicles = SandboxVehicles()
	}
	t := Token{
		ID:         newID("cstid"),
		Sandbox:    r.Sandbox,
		Developer:  r.Developer,
		Operations: r.Operations,
		Vehicles:   r.Vehicles,
		Rate:       r.Rate,
		Created:    now.UTC().Truncate(time.Millisecond),
		Expires:    r.Expires.UTC().Truncate(time.Millisecond),
	}
	var secret string
	secret, t.Hash = NewSecret(t.Kind())
	return t, secret, nil
}

// Kind is the kind of the token's secret.
func (t *Token) Kind() Kind {
	if t.Sandbox {
		return SandboxKind
	}
	return TokenKind
}

// Rotate replaces the secret by the one of hash. See [rotate] for what becomes
// of the old one.
func (t *Token) Rotate(hash Hash, overlap time.Duration, now time.Time) (err error) {
	if err := t.Usable(now); err != nil {
		return fmt.Errorf("the token cannot be rotated: %w", err)
	}
	t.Hash, t.Earlier, err = rotate(t.Hash, t.Earlier, hash, overlap, now)
	return err
}

// Usable says why the token does not count at now: [ErrRevoked], [ErrExpired],
// or nil.
func (t *Token) Usable(now time.Time) error {
	switch {
	case !t.Revoked.IsZero():
		return ErrRevoked
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		return ErrExpired
	}
	return nil
}

// Reasons why a secret is refused.
var (
	ErrNotKnown = errors.New("it is not known here")
	ErrRevoked  = errors.New("it was revoked")
	ErrExpired  = errors.New("it has expired")
	ErrReplaced = errors.New("it was replaced by a newer one")
)

// maxName bounds the names of developers and sources, in bytes.
const maxName = 200

// checkName refuses names that would not survive a log line or a table.
func checkName(what, s string) error {
	if s == "" || len(s) > maxName || !utf8.ValidString(s) {
		return fmt.Errorf("%s must have 1 to %d bytes of text", what, maxName)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s must consist of printable characters", what)
		}
	}
	if holdsSecret(s) {
		return errNameIsSecret
	}
	return nil
}
