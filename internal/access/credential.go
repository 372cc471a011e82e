package access

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Credential is the record of who may ask (a token), send telemetry (a source: a
// car, or a gateway that speaks for many) or run the service (an operator, whom the
// audit names). It holds no secret.
type Credential struct {
	Kind     Kind      // of the secret
	Name     string    // the ID of a token, cstid…; also the MQTT user name of a source
	Hash     Hash      // of the secret
	Earlier  []Earlier // secrets that rotation replaced, oldest first; the last few that have ended included
	Vehicles Vehicles  // none for an operator
	Created  time.Time
	Rotated  time.Time // when the secret was last replaced; zero: never
	Expires  time.Time // zero: never
	Ended    time.Time // when it was revoked or removed; zero: it was not

	Rate Rate // of the calls of a token, or of the samples of a source

	// Tokens alone have these.
	Developer  string
	Operations Operations

	Strict bool // of a source alone: unknown signals refuse a sample
}

// Policy is what differs between the kinds of credential.
type Policy struct {
	Noun       string // what one is called in records, in the audit and in texts
	Begin, End string // the verbs for making one and for ending one
	Listed     bool   // one that has ended stays listed, and its name is not given again
	Overlap    bool   // a replaced secret may be valid for a while longer
	AdminOnly  bool   // changes need the admin key
}

var policies = map[Kind]Policy{
	TokenKind:    {Noun: "token", Begin: "issue", End: "revoke", Listed: true, Overlap: true},
	SandboxKind:  {Noun: "token", Begin: "issue", End: "revoke", Listed: true, Overlap: true},
	SourceKind:   {Noun: "source", Begin: "add", End: "remove", Overlap: true},
	OperatorKind: {Noun: "operator", Begin: "add", End: "remove", AdminOnly: true},
}

// Policy is what holds for credentials of the kind.
func (k Kind) Policy() Policy { return policies[k] }

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

// tokenID is how the IDs of tokens begin.
const tokenID = "cstid"

// Issue makes a token and the secret to be shown once.
func Issue(r TokenRequest, now time.Time) (Credential, string, error) {
	c := Credential{
		Kind: TokenKind, Name: newID(tokenID), Vehicles: r.Vehicles, Expires: r.Expires,
		Developer: r.Developer, Operations: r.Operations, Rate: r.Rate,
	}
	if r.Sandbox {
		c.Kind, c.Vehicles = SandboxKind, SandboxVehicles()
	}
	return c.begin(now)
}

// SourceRequest is what an operator says when adding a source.
type SourceRequest struct {
	Name     string
	Vehicles Vehicles
	Rate     Rate      // of samples
	Expires  time.Time // zero: never
	Strict   bool      // unknown signals refuse a sample
}

// AddSource makes a source and the key to be shown once.
func AddSource(r SourceRequest, now time.Time) (Credential, string, error) {
	if r.Vehicles.none() {
		return Credential{}, "", errSourceWithoutVehicles
	}
	c := Credential{Kind: SourceKind, Name: r.Name, Vehicles: r.Vehicles, Rate: r.Rate, Expires: r.Expires, Strict: r.Strict}
	return c.begin(now)
}

var errSourceWithoutVehicles = errors.New("a source needs vehicles to speak for: all, or a list")

// Change is what an operator changes of a token or a source. What is nil stays.
type Change struct {
	Vehicles *Vehicles
	Rate     *Rate
	Expires  *time.Time // zero: never
	Strict   *bool      // of a source alone
}

// Change applies a change at now. A credential that has expired counts again if the change
// gives it a later end. One that was revoked or removed does not change: [ErrRevoked].
func (c *Credential) Change(to Change, now time.Time) error {
	if !c.Ended.IsZero() {
		return ErrRevoked
	}
	if to.Vehicles != nil {
		switch {
		case c.Sandbox():
			return errors.New("a sandbox token sees the reserved vehicles and no others")
		case c.Kind == SourceKind && to.Vehicles.none():
			return errSourceWithoutVehicles
		}
		c.Vehicles = *to.Vehicles
	}
	if to.Rate != nil {
		c.Rate = *to.Rate
	}
	if to.Expires != nil {
		if !to.Expires.IsZero() && !to.Expires.After(now) {
			p := c.Kind.Policy()
			return fmt.Errorf("a %s cannot expire in the past: %s it to end it at once", p.Noun, p.End)
		}
		c.Expires = to.Expires.UTC().Truncate(time.Millisecond)
	}
	if to.Strict != nil {
		c.Strict = *to.Strict
	}
	return c.Check()
}

// AddOperator makes an operator and the key to be shown once.
func AddOperator(name string, now time.Time) (Credential, string, error) {
	return Credential{Kind: OperatorKind, Name: name}.begin(now)
}

// Check says why the service cannot have made such a credential; nil: it can. New credentials,
// stored ones and those of a backup are held against it. It does not look at vehicles: a list may
// have lost its last one, which was forgotten.
func (c *Credential) Check() error {
	if err := CheckName(c.Kind, c.Name); err != nil {
		return err
	}
	if c.Kind == TokenKind || c.Kind == SandboxKind {
		if err := checkName("a developer's name", c.Developer); err != nil {
			return err
		}
		if c.Operations == 0 || !AllOperations.Has(c.Operations) {
			return errors.New("a token needs at least one operation, and none that is not known")
		}
	} else if c.Developer != "" || c.Operations != 0 {
		return errors.New("only a token has a developer and operations")
	}
	if c.Strict && c.Kind != SourceKind {
		return errors.New("only a source can be strict")
	}
	if _, err := ParseRate(c.Rate.String()); err != nil {
		return err
	}
	if len(c.Earlier) > maxEarlier+maxEnded {
		return fmt.Errorf("at most %d replaced secrets are kept", maxEarlier+maxEnded)
	}
	for _, e := range c.Earlier {
		if e.Until.After(c.Rotated.Add(MaxOverlap)) {
			return fmt.Errorf("a replaced secret stays valid for at most %d days", MaxOverlap/(24*time.Hour))
		}
	}
	return nil
}

// begin gives a credential its secret and its times.
func (c Credential) begin(now time.Time) (Credential, string, error) {
	if !c.Expires.IsZero() && !c.Expires.After(now) {
		p := c.Kind.Policy()
		return Credential{}, "", fmt.Errorf("a %s cannot expire before it is %sed", p.Noun, strings.TrimSuffix(p.Begin, "e"))
	}
	if err := c.Check(); err != nil {
		return Credential{}, "", err
	}
	c.Created, c.Expires = now.UTC().Truncate(time.Millisecond), c.Expires.UTC().Truncate(time.Millisecond)
	secret, hash := NewSecret(c.Kind)
	c.Hash = hash
	return c, secret, nil
}

// Sandbox reports whether it is a token that sees the reserved vehicles and no real
// ones.
func (c *Credential) Sandbox() bool { return c.Kind == SandboxKind }

// Usable says why the credential does not count at now: [ErrRevoked] (removed, too),
// [ErrExpired], or nil.
func (c *Credential) Usable(now time.Time) error {
	switch {
	case !c.Ended.IsZero():
		return ErrRevoked
	case !c.Expires.IsZero() && !now.Before(c.Expires):
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
	// ErrUnread says that nobody can tell here: a newer version wrote records that this one cannot
	// read. An upgraded node can.
	ErrUnread = errors.New("it may be one that this node is too old to read: try again")
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
	if HoldsSecret(s) {
		return errNameIsSecret
	}
	return nil
}

// AdminName is the name in the audit for the holder of the admin key. No operator can
// have it, and no right follows from it: see [Actor].
const AdminName = "admin"

// maxPlainName bounds the names of sources and operators, in bytes.
const maxPlainName = 64

// CheckName says whether a text can name a credential of the kind. A name can stand in
// a subject, a path, a user name and a log line as it is.
func CheckName(kind Kind, name string) error {
	ok := name != "" && len(name) <= maxPlainName
	for i := range len(name) {
		c := name[i]
		ok = ok && (c-'0' <= 9 || c-'A' <= 25 || c-'a' <= 25 || c == '-' || c == '_')
	}
	switch {
	case kind == TokenKind || kind == SandboxKind:
		if id, is := strings.CutPrefix(name, tokenID); !ok || !is || len(id) != idLength || strings.Trim(id, base62) != "" {
			return errors.New("a token's ID is cstid and 12 letters and digits")
		}
		return nil
	case !ok && kind == OperatorKind:
		return errors.New("an operator's name has 1 to 64 letters, digits, '-' and '_'")
	case !ok:
		return errors.New("a source's name has 1 to 64 letters, digits, '-' and '_'")
	case HoldsSecret(name):
		return errNameIsSecret
	case kind == OperatorKind && strings.EqualFold(name, AdminName): // nobody may look like it in the audit
		return errors.New("the name admin is that of the admin key: choose another")
	}
	return nil
}
