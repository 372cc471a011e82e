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

// The tags of Credential are the names in the stored record.
type Credential struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // a token's ID (cstid…), or a source's or operator's name, with which a source logs in by MQTT
	Hash Hash   `json:"hash"`
	// Earlier has replaced secrets, oldest first: those still valid, and the last maxEnded others.
	Earlier  []Earlier `json:"earlier,omitempty"`
	Vehicles Vehicles  `json:"-"` // empty for an operator
	Created  time.Time `json:"created"`
	Rotated  time.Time `json:"rotated,omitzero"` // zero: never
	Expires  time.Time `json:"expires,omitzero"` // zero: never
	Ended    time.Time `json:"ended,omitzero"`   // revoked or removed; zero: not

	Rate Rate `json:"-"` // see Limit

	// Of tokens:
	Developer  string     `json:"developer,omitzero"`
	Operations Operations `json:"operations,omitzero"`

	// Of sources; Strict refuses samples with an unknown signal or a wrong value.
	Strict   bool           `json:"strict,omitzero"`
	OnChange OnChange       `json:"-"`
	Format   *format.Format `json:"-"` // if nil, the service's own format
	// If nil, true for a source of all vehicles; see Crowd.
	TrustedCrowd *bool `json:"trusted_crowd,omitzero"`
	// Number stands for the source's name in the telemetry log. It never changes.
	Number uint32 `json:"number,omitzero"`

	ReadOnly bool `json:"read_only,omitzero"` // of operators
}

// Limit is the Rate or, for a source with named vehicles and the zero Rate, 10 samples a second for
// each vehicle, after a burst of 36,000.
func (c *Credential) Limit() Rate {
	if c.hasDefaultRate() {
		return Rate{defaultBurst, max(defaultBurst*defaultEach/time.Duration(max(1, c.Vehicles.Len())), defaultBurst)}
	}
	return c.Rate
}

func (c *Credential) hasDefaultRate() bool {
	return c.Kind == SourceKind && c.Rate == Rate{} && !c.Vehicles.All()
}

// RateText returns the limit as [ParseRate] accepts it.
func (c *Credential) RateText() string {
	if c.hasDefaultRate() {
		return defaultInText
	}
	return c.Rate.String()
}

type Earlier struct {
	Hash  Hash      `json:"hash"`
	Until time.Time `json:"until"`
}

const (
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 90 * 24 * time.Hour
	// maxEarlier replaced secrets may be valid at the same time.
	maxEarlier = 8
	// maxEnded secrets are kept after their end, to be refused with [ErrReplaced].
	maxEnded = 8
	// maxSkew is allowed between the clocks of two nodes.
	maxSkew = time.Hour
)

type Policy struct {
	Noun       string
	Begin, End string // verbs of its operations, such as issue and revoke
	Listed     bool   // lists show it even after its end, because its name is never reused
	Overlap    bool   // a replaced secret may stay valid for a while
	AdminOnly  bool   // changes need the admin key
}

var policies = map[Kind]Policy{
	TokenKind:    {Noun: "token", Begin: "issue", End: "revoke", Listed: true, Overlap: true},
	SandboxKind:  {Noun: "token", Begin: "issue", End: "revoke", Listed: true, Overlap: true},
	SourceKind:   {Noun: "source", Begin: "add", End: "remove", Overlap: true},
	OperatorKind: {Noun: "operator", Begin: "add", End: "remove", AdminOnly: true},
}

func (k Kind) Policy() Policy { return policies[k] }

const DefaultTokenLife = 90 * 24 * time.Hour

const tokenID = "cstid"

// New completes c to a new credential, and returns its secret, which is not kept. A token gets an
// ID, and a sandbox token also the reserved vehicles.
func New(c Credential, now time.Time) (Credential, string, error) {
	if err := (&Credential{Kind: c.Kind}).SetVehicles(c.Vehicles); err != nil {
		return Credential{}, "", err
	}
	switch {
	case c.Kind == SandboxKind:
		c.Name, c.Vehicles = newTokenID(), SandboxVehicles()
	case c.Kind == TokenKind:
		c.Name = newTokenID()
	case c.Kind == SourceKind && c.Vehicles.none():
		return Credential{}, "", errSourceWithoutVehicles
	}
	c.setRate(c.Rate)
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

// A nil field of Change leaves the value as it is.
type Change struct {
	Vehicles *Vehicles
	Rate     *Rate
	Expires  *time.Time // zero: never
	Strict   *bool
	OnChange *OnChange
	Format   **format.Format

	TrustedCrowd *bool
}

// Change changes what to names. A later expiry revives an expired credential, but not a revoked one
// ([ErrRevoked]). After another error, c must be discarded.
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

// A grant names at most MaxNamed vehicles, so that records stay small. A longer list that an earlier
// version stored may stay, but not grow.
const MaxNamed = 10_000

func (c *Credential) SetVehicles(v Vehicles) error {
	if n := v.Len(); n > max(MaxNamed, c.Vehicles.Len()) {
		noun := c.Kind.Policy().Noun
		return fmt.Errorf("a %s names at most %d vehicles, not %d: let it cover all (--vehicles all), or use several %ss",
			noun, MaxNamed, n, noun)
	}
	c.Vehicles = v
	return nil
}

// Crowd reports whether each car of the source counts as one of the cars on a road. Otherwise all of
// them count as one car, because the holder of the key may invent cars.
func (c *Credential) Crowd() bool {
	if c.TrustedCrowd != nil {
		return *c.TrustedCrowd
	}
	return c.Vehicles.All()
}

func (c *Credential) setRate(r Rate) {
	if c.Rate = r; r == NoRate && c.Kind != SourceKind {
		c.Rate = Rate{}
	}
}

// Check refuses what this service never stores. A list of vehicles may be empty, because the last
// one may have been forgotten.
func (c *Credential) Check() error {
	if err := CheckName(c.Kind, c.Name); err != nil {
		return err
	}
	if c.Kind == TokenKind || c.Kind == SandboxKind {
		switch s := c.Developer; {
		case s == "" || len(s) > maxName || !utf8.ValidString(s):
			return fmt.Errorf("a developer's name must have 1 to %d bytes of text", maxName)
		case Printable(s) != s:
			return errors.New("a developer's name must consist of printable characters")
		case HoldsSecret(s):
			return errNameIsSecret
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

func (c *Credential) Sandbox() bool { return c.Kind == SandboxKind }

func (c *Credential) Usable(now time.Time) error {
	switch {
	case !c.Ended.IsZero():
		return ErrRevoked
	case !c.Expires.IsZero() && !now.Before(c.Expires):
		return ErrExpired
	}
	return nil
}

var (
	ErrNotKnown = errors.New("it is not known here")
	ErrRevoked  = errors.New("it was revoked")
	ErrExpired  = errors.New("it has expired")
	ErrReplaced = errors.New("it was replaced by a newer one")
	ErrIsToken  = errors.New("it is an access token, which is for queries: " +
		"telemetry takes a source's key, which begins with " + string(SourceKind))
	ErrUnread = errors.New("it may be one that this node is too old to read: try again")
)

const maxName = 200

// AdminName is the actor of the admin key. The name alone grants no right; see [Actor].
const AdminName = "admin"

const maxPlainName = 64

var (
	tokenName = regexp.MustCompile(fmt.Sprintf(`^%s[0-9A-Za-z]{%d}$`, tokenID, idLength))
	plainName = regexp.MustCompile(fmt.Sprintf(`^[0-9A-Za-z_-]{1,%d}$`, maxPlainName))
)

// CheckName allows only names that need no escaping in NATS subjects, paths, MQTT and log lines.
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
	case kind == OperatorKind && strings.EqualFold(name, AdminName): // it would look like the admin key
		return errors.New("the name admin is reserved for the admin key: choose another")
	}
	return nil
}
