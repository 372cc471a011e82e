package access

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"example.org/carstate/internal/format"
)

// Credential is the record of a token, a source or an operator, with the hash of its secret only.
type Credential struct {
	Kind Kind   // kind of the secret
	Name string // a token's ID (cstid…), or a source's or operator's name; a source's is also its MQTT user name
	Hash Hash   // hash of the current secret
	// Earlier holds the secrets that rotations replaced, oldest first: those that are still
	// valid, and the last few that are no longer valid.
	Earlier  []Earlier
	Vehicles Vehicles // empty for an operator
	Created  time.Time
	Rotated  time.Time // when the secret was last replaced; zero: never
	Expires  time.Time // zero: never
	Ended    time.Time // when it was revoked or removed; zero: not

	Rate Rate // limit on a token's calls or a source's samples, see Limit

	// Only tokens have a Developer and Operations.
	Developer  string
	Operations Operations

	Strict   bool           // sources only: a sample with an unknown signal is refused
	OnChange OnChange       // sources only
	Format   *format.Format // sources only; if nil, the service's own format
	// TrustedCrowd is set for sources only. If nil, the source is trusted if it covers all vehicles.
	TrustedCrowd *bool
	// Number stands for the name of a source in the telemetry log. The store gives it to a name, for
	// good: a removed source keeps it, and so does a later source of the same name.
	Number uint32

	ReadOnly bool // operators only: the operator can change nothing
}

// Limit returns the limit on a token's calls or a source's samples. If a source has named vehicles and
// the zero Rate, it is the default rate: 10/s for each vehicle, and bursts of 36,000 samples.
func (c *Credential) Limit() Rate {
	if c.hasDefaultRate() {
		return Rate{defaultBurst, max(defaultBurst*defaultEach/time.Duration(max(1, c.Vehicles.Len())), defaultBurst)}
	}
	return c.Rate
}

func (c *Credential) hasDefaultRate() bool {
	return c.Kind == SourceKind && c.Rate == Rate{} && !c.Vehicles.All()
}

// RateText returns the limit as text that [ParseRate] accepts.
func (c *Credential) RateText() string {
	if c.hasDefaultRate() {
		return defaultInText
	}
	return c.Rate.String()
}

// Earlier is a secret that was replaced. It stays valid until the time Until, so that its holder
// has time to change to the new secret.
type Earlier struct {
	Hash  Hash
	Until time.Time // from this time on it is refused
}

// Limits of a rotation.
const (
	// DefaultOverlap is how long a replaced secret stays valid if no overlap is given.
	DefaultOverlap = 24 * time.Hour
	// MaxOverlap is the maximum time for which a replaced secret stays valid.
	MaxOverlap = 90 * 24 * time.Hour
	// maxEarlier is the maximum number of replaced secrets of one credential that are valid at the
	// same time. A rotation that would exceed it is refused.
	maxEarlier = 8
	// maxEnded is the number of replaced secrets that are kept after their end, so that they are
	// refused with [ErrReplaced].
	maxEnded = 8
	// maxSkew is the maximum difference that is expected between the clocks of two nodes.
	maxSkew = time.Hour
)

// Policy holds the rules for one kind of credential, and the words that messages, the audit and
// stored records use for it.
type Policy struct {
	Noun       string // name of the kind in records, in the audit and in texts
	Begin, End string // verbs for creating one and for ending one
	Listed     bool   // an ended credential stays listed, and its name is never reused
	Overlap    bool   // a replaced secret may stay valid for a while
	AdminOnly  bool   // changes need the admin key
}

var policies = map[Kind]Policy{
	TokenKind:    {Noun: "token", Begin: "issue", End: "revoke", Listed: true, Overlap: true},
	SandboxKind:  {Noun: "token", Begin: "issue", End: "revoke", Listed: true, Overlap: true},
	SourceKind:   {Noun: "source", Begin: "add", End: "remove", Overlap: true},
	OperatorKind: {Noun: "operator", Begin: "add", End: "remove", AdminOnly: true},
}

// Policy returns the rules for credentials of the kind. For a kind that no credential has, such as
// [AdminKind], it returns the zero Policy.
func (k Kind) Policy() Policy { return policies[k] }

// DefaultTokenLife is the lifetime of a token for which no expiry is given.
const DefaultTokenLife = 90 * 24 * time.Hour

// Request holds the parameters of a new credential.
type Request struct {
	Kind       Kind
	Name       string // only of a source or an operator; a token gets an ID
	Developer  string // tokens only
	Operations Operations
	Vehicles   Vehicles // of a token or a source; a sandbox token always covers the reserved vehicles
	Rate       Rate
	Expires    time.Time // zero: never
	Strict     bool      // sources only: a sample with an unknown signal is refused
	OnChange   OnChange  // sources only
	ReadOnly   bool      // operators only
	Format     *format.Format

	TrustedCrowd *bool // sources only; if nil, as the vehicles say
}

// tokenID is the prefix of every token ID.
const tokenID = "cstid"

// New creates a credential at the time now, and its secret, which is shown once and not kept.
func New(r Request, now time.Time) (Credential, string, error) {
	c := Credential{
		Kind: r.Kind, Name: r.Name, Expires: r.Expires,
		Developer: r.Developer, Operations: r.Operations, Strict: r.Strict, OnChange: r.OnChange,
		ReadOnly: r.ReadOnly, Format: r.Format, TrustedCrowd: r.TrustedCrowd,
	}
	if err := c.SetVehicles(r.Vehicles); err != nil {
		return Credential{}, "", err
	}
	switch {
	case r.Kind == SandboxKind:
		c.Name, c.Vehicles = newTokenID(), SandboxVehicles()
	case r.Kind == TokenKind:
		c.Name = newTokenID()
	case r.Kind == SourceKind && r.Vehicles.none():
		return Credential{}, "", errSourceWithoutVehicles
	}
	c.setRate(r.Rate)
	if !c.Expires.IsZero() && !c.Expires.After(now) {
		p := c.Kind.Policy()
		return Credential{}, "", fmt.Errorf("a %s cannot expire before it is %sed", p.Noun,
			strings.TrimSuffix(p.Begin, "e"))
	}
	if err := c.Check(); err != nil {
		return Credential{}, "", err
	}
	c.Created, c.Expires = now.UTC().Truncate(time.Millisecond), c.Expires.UTC().Truncate(time.Millisecond)
	secret, hash := NewSecret(c.Kind)
	c.Hash = hash
	return c, secret, nil
}

var errSourceWithoutVehicles = errors.New("a source needs vehicles: all, or a list")

// Change holds changes to a token or a source. A nil field leaves the value as it is.
type Change struct {
	Vehicles *Vehicles
	Rate     *Rate
	Expires  *time.Time // zero: never
	Strict   *bool      // sources only
	OnChange *OnChange  // sources only
	Format   **format.Format

	TrustedCrowd *bool // sources only
}

// Change applies a change at time now. A later expiry makes an expired credential valid again. A
// revoked or removed one is not changed ([ErrRevoked]). After another error, c must be discarded.
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
		if err := c.SetVehicles(*to.Vehicles); err != nil {
			return err
		}
	}
	if to.Rate != nil {
		c.setRate(*to.Rate)
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
	if to.OnChange != nil {
		c.OnChange = *to.OnChange
	}
	if to.Format != nil {
		c.Format = *to.Format
	}
	if to.TrustedCrowd != nil {
		c.TrustedCrowd = to.TrustedCrowd
	}
	return c.Check()
}

// MaxNamed is the maximum number of vehicles that a token or a source names, so that its record
// stays small. Those of earlier versions may name more, but no further ones.
const MaxNamed = 10_000

// SetVehicles replaces the vehicles. If there are more than MaxNamed and more than before, it returns
// an error and changes nothing.
func (c *Credential) SetVehicles(v Vehicles) error {
	if n := v.Len(); n > max(MaxNamed, c.Vehicles.Len()) {
		noun := c.Kind.Policy().Noun
		return fmt.Errorf("a %s names at most %d vehicles, not %d: let it cover all (--vehicles all), or use several %ss",
			noun, MaxNamed, n, noun)
	}
	c.Vehicles = v
	return nil
}

// Crowd reports whether each car of this source is a voice on roads, because its holder invents none.
// Otherwise, all its cars are one voice.
func (c *Credential) Crowd() bool {
	if c.TrustedCrowd != nil {
		return *c.TrustedCrowd
	}
	return c.Vehicles.All()
}

// setRate sets the rate. Only a source has a default rate, which NoRate takes away.
func (c *Credential) setRate(r Rate) {
	if c.Rate = r; r == NoRate && c.Kind != SourceKind {
		c.Rate = Rate{}
	}
}

// Check returns an error if a field has a value that this service never stores. It accepts any
// Vehicles, because a list becomes empty when its last vehicle is forgotten.
func (c *Credential) Check() error {
	if err := CheckName(c.Kind, c.Name); err != nil {
		return err
	}
	if c.Kind == TokenKind || c.Kind == SandboxKind {
		if err := checkName("a developer's name", c.Developer); err != nil {
			return err
		}
		if c.Operations == 0 || !AllOperations.Has(c.Operations) {
			return errors.New("a token needs at least one operation, and only known ones")
		}
	} else if c.Developer != "" || c.Operations != 0 {
		return errors.New("only a token has a developer and operations")
	}
	if (c.Strict || c.OnChange.given || c.Format != nil || c.TrustedCrowd != nil) && c.Kind != SourceKind {
		return errors.New("only a source can be strict, send on change or have a format or a trusted crowd")
	}
	if c.ReadOnly && c.Kind != OperatorKind {
		return errors.New("only an operator can be read-only")
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

// Sandbox reports whether this is a sandbox token, which covers only the reserved vehicles.
func (c *Credential) Sandbox() bool { return c.Kind == SandboxKind }

// Usable returns nil if the credential is valid at time now. Otherwise it returns [ErrRevoked] for
// a revoked or removed credential, and [ErrExpired] for an expired one.
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
	// ErrIsToken means that an access token was used in place of a source's key.
	ErrIsToken = errors.New("it is an access token, which is for queries: " +
		"telemetry takes a source's key, which begins with " + string(SourceKind))
	// ErrUnread means that the secret is unknown to this node but may be valid: a newer version of
	// carstate has stored credentials that this node cannot read, and the secret may belong to one
	// of them. A node of the newer version knows whether it does.
	ErrUnread = errors.New("it may be one that this node is too old to read: try again")
)

// maxName is the maximum length of a developer's name, in bytes.
const maxName = 200

// checkName returns an error unless s is a valid name: 1 to maxName bytes of printable text without
// a secret. what describes the name in the error, as in "a developer's name".
func checkName(what, s string) error {
	switch {
	case s == "" || len(s) > maxName || !utf8.ValidString(s):
		return fmt.Errorf("%s must have 1 to %d bytes of text", what, maxName)
	case Printable(s) != s:
		return fmt.Errorf("%s must consist of printable characters", what)
	case HoldsSecret(s):
		return errNameIsSecret
	}
	return nil
}

// AdminName is the name of the holder of the admin key in the audit. No operator can have this
// name. The name grants no right; see [Actor].
const AdminName = "admin"

// maxPlainName is the maximum length of a source's or operator's name, in bytes.
const maxPlainName = 64

// The names that [CheckName] accepts: those of tokens, and those of sources and operators.
var (
	tokenName = regexp.MustCompile(fmt.Sprintf(`^%s[0-9A-Za-z]{%d}$`, tokenID, idLength))
	plainName = regexp.MustCompile(fmt.Sprintf(`^[0-9A-Za-z_-]{1,%d}$`, maxPlainName))
)

// CheckName returns an error if the text is not a valid name for a credential of the kind. A valid
// name can be used without escaping in a NATS subject, a path, an MQTT user name and a log line.
func CheckName(kind Kind, name string) error {
	switch ok := plainName.MatchString(name); {
	case kind == TokenKind || kind == SandboxKind:
		if !tokenName.MatchString(name) {
			return errors.New("a token's ID is cstid and 12 letters and digits")
		}
		return nil
	case !ok && kind == OperatorKind:
		return errors.New("an operator's name has 1 to 64 letters, digits, '-' and '_'")
	case !ok:
		return errors.New("a source's name has 1 to 64 letters, digits, '-' and '_'")
	case HoldsSecret(name):
		return errNameIsSecret
	case kind == OperatorKind && strings.EqualFold(name, AdminName): // it would look like the holder of the admin key
		return errors.New("the name admin is reserved for the admin key: choose another")
	}
	return nil
}
