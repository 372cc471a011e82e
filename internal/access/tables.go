package access

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Credentials is a node's table of all tokens, of all sources or of all operators. A feed of
// changed records keeps it up to date. Looking up a secret takes no lock. The zero value is empty.
type Credentials struct {
	byHash    shards
	hasUnread atomic.Bool // whether unread is not empty

	mu     sync.Mutex // guards the fields below and serializes changes of byHash
	byName map[string]*Grant
	unread map[string]struct{} // names whose records this version cannot read
	usages map[string]*usage   // by name; stored usage may arrive before the token
}

// Tokens are the credentials for queries.
type Tokens struct{ Credentials }

// Sources are the credentials for telemetry.
type Sources struct{ Credentials }

// Operators are the credentials for administration.
type Operators struct{ Credentials }

// Tables holds all credentials that a node knows. The zero value is empty.
type Tables struct {
	Tokens    Tokens
	Sources   Sources
	Operators Operators
}

// Of returns the table with the credentials of the kind. For a kind that no credential has, it
// returns the table of tokens.
func (t *Tables) Of(kind Kind) *Credentials {
	switch kind {
	case SourceKind:
		return &t.Sources.Credentials
	case OperatorKind:
		return &t.Operators.Credentials
	}
	return &t.Tokens.Credentials
}

// Grant is one entry of a node's table of credentials: the whole record of a credential, and the
// node's counters for it, which are kept when the record changes.
type Grant struct {
	Credential
	*usage
}

// heldSecret is a table's entry for one secret: the credential that it belongs to and, if the
// secret was replaced, the time until which it is valid.
type heldSecret struct {
	by    *Grant
	until time.Time // zero: the current secret
}

// secrets returns the current and the replaced secrets, by hash, even those that have ended.
func (g *Grant) secrets() map[Hash]heldSecret {
	all := make(map[Hash]heldSecret, 1+len(g.Earlier))
	for _, e := range g.Earlier {
		all[e.Hash] = heldSecret{g, e.Until}
	}
	all[g.Hash] = heldSecret{by: g}
	return all
}

// lock locks mu. The first call also makes the maps, so that the zero value can be used.
func (t *Credentials) lock() {
	t.mu.Lock()
	if t.byName == nil {
		t.byName, t.unread, t.usages = make(map[string]*Grant), make(map[string]struct{}), make(map[string]*usage)
	}
}

// Put adds a record, or replaces an older record of the same name. The table also keeps credentials
// that were revoked or removed; their secrets are refused with [ErrRevoked].
func (t *Credentials) Put(c Credential) {
	t.lock()
	defer t.mu.Unlock()
	delete(t.unread, c.Name)
	t.hasUnread.Store(len(t.unread) > 0)
	old := t.byName[c.Name]
	if old != nil && !old.Created.Equal(c.Created) { // a new credential with the name of an older one
		delete(t.usages, c.Name)
	}
	g := &Grant{c, t.usage(c.Name)}
	t.byName[c.Name] = g
	now := g.secrets()
	for hash, h := range now {
		t.byHash.put(hash, h)
	}
	if old != nil {
		for hash := range old.secrets() {
			if _, kept := now[hash]; !kept {
				t.byHash.put(hash, heldSecret{})
			}
		}
	}
}

// Lose removes a credential whose record this node cannot read, because a newer version wrote it.
// The credential may have been revoked, or may have a new secret that this node does not know.
// While the table has such a record, the lookup of any unknown secret returns [ErrUnread].
func (t *Credentials) Lose(name string) {
	t.lock()
	defer t.mu.Unlock()
	t.unread[name] = struct{}{}
	t.hasUnread.Store(true)
	if old := t.byName[name]; old != nil {
		delete(t.byName, name)
		for hash := range old.secrets() {
			t.byHash.put(hash, heldSecret{})
		}
	}
}

// Unread reports whether a newer version wrote tokens or sources that this node cannot read.
func (t *Tables) Unread() bool { return t.Tokens.hasUnread.Load() || t.Sources.hasUnread.Load() }

// usage returns the counters of a credential, made at the first use. The caller holds mu.
func (t *Credentials) usage(id string) *usage {
	u := t.usages[id]
	if u == nil {
		u = new(usage)
		t.usages[id] = u
	}
	return u
}

// usageOf is like usage, for a caller that does not hold mu.
func (t *Credentials) usageOf(id string) *usage {
	t.lock()
	defer t.mu.Unlock()
	return t.usage(id)
}

// verify is like [Tokens.Verify], for any kind. The text of an error can be shown to the caller.
// verify does the same work for a known and an unknown secret.
func (t *Credentials) verify(kind Kind, secret []byte, now time.Time) (*Grant, error) {
	if err := Check(kind, secret); err != nil {
		return nil, err
	}
	h, ok := t.byHash.get(HashOf(secret))
	if !ok && t.hasUnread.Load() {
		return nil, ErrUnread
	}
	if !ok {
		return nil, ErrNotKnown
	}
	if err := h.by.Usable(now); err != nil {
		return h.by, err
	}
	if !h.until.IsZero() && !now.Before(h.until) {
		return h.by, ErrReplaced
	}
	return h.by, nil
}

// Verify returns the token that a secret belongs to. If there is none, it returns nil and an error:
// [ErrMalformed], [ErrChecksum], [ErrNotKnown] or [ErrUnread]. If the secret is no longer valid, it
// returns both the token and an error: [ErrRevoked], [ErrExpired] or [ErrReplaced].
func (t *Tokens) Verify(secret []byte, now time.Time) (*Grant, error) {
	kind := TokenKind
	if bytes.HasPrefix(secret, []byte(SandboxKind)) {
		kind = SandboxKind
	}
	return t.verify(kind, secret, now)
}

// Verify is like [Tokens.Verify], for the key of a source, and also notes its last use or refusal. For
// an access token, the error is [ErrIsToken].
func (t *Sources) Verify(key []byte, now time.Time) (*Grant, error) {
	g, err := t.verify(SourceKind, key, now)
	if err == ErrMalformed && (bytes.HasPrefix(key, []byte(TokenKind)) || bytes.HasPrefix(key, []byte(SandboxKind))) {
		err = ErrIsToken
	}
	if g != nil {
		g.note(err, now)
	}
	return g, err
}

// VerifyNamed is like Verify, for a key that is sent together with the source's name, as in MQTT. The
// valid key of another source is refused with [ErrNotKnown]. A wrong key is also recorded in the
// counters of the named source, except with [ErrUnread], because it may be valid.
func (t *Sources) VerifyNamed(name string, key []byte, now time.Time) (*Grant, error) {
	g, err := t.Verify(key, now)
	if g != nil && g.Name == name || errors.Is(err, ErrUnread) {
		return g, err
	}
	why := err
	if g != nil {
		g, err, why = nil, cmp.Or(err, ErrNotKnown), errOfAnother
	}
	if named, ok := t.Get(name); ok {
		named.refuseKey(WrongKey, "the password is not the key of this source: "+why.Error(), now)
	}
	return g, err
}

// errOfAnother is the reason that is recorded for a source if its name was sent with the key of
// another source. The client must not learn this reason.
var errOfAnother = errors.New("it is the key of another one")

// Verify is like [Tokens.Verify], for the key of an operator.
func (t *Operators) Verify(key []byte, now time.Time) (*Grant, error) {
	return t.verify(OperatorKind, key, now)
}

// Get returns a credential by its name, even if it was revoked or removed. If there is none of this
// name, or its record cannot be read (see [Credentials.Lose]), Get returns nil and false.
func (t *Credentials) Get(name string) (*Grant, bool) {
	t.lock()
	defer t.mu.Unlock()
	g, ok := t.byName[name]
	return g, ok
}

// All returns all credentials, oldest first, including revoked and removed ones.
func (t *Credentials) All() []*Grant {
	t.lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byName), func(a, b *Grant) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// number matches a number in a name.
var number = regexp.MustCompile("[0-9]+")

// List returns all credentials that were not revoked or removed, sorted by name.
// Numbers in names count as numbers: gw-2 is before gw-10.
func (t *Credentials) List() []*Grant {
	list := slices.DeleteFunc(t.All(), func(g *Grant) bool { return !g.Ended.IsZero() })
	keys := make(map[string]string, len(list)) // by name; all numbers of a key have the same length
	for _, g := range list {
		keys[g.Name] = number.ReplaceAllStringFunc(g.Name, func(n string) string {
			return strings.Repeat("0", maxPlainName-len(n)) + n
		})
	}
	slices.SortFunc(list, func(a, b *Grant) int {
		return cmp.Or(cmp.Compare(keys[a.Name], keys[b.Name]), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// Len returns the number of credentials, including revoked, removed and expired ones.
func (t *Credentials) Len() int {
	t.lock()
	defer t.mu.Unlock()
	return len(t.byName)
}

// Expiring returns the number of credentials that are valid at time now, but no longer at the later
// time then.
func (t *Credentials) Expiring(now, then time.Time) (n int) {
	t.lock()
	defer t.mu.Unlock()
	for _, g := range t.byName {
		if g.Usable(now) == nil && g.Usable(then) != nil {
			n++
		}
	}
	return n
}

// shards is a map from the hashes of secrets to their entries that is read without a lock. It
// consists of 256 maps, selected by the first byte of the hash. A map is never changed: a write
// copies the map, changes the copy and replaces the map by the copy. Writers must not run
// concurrently. With 100,000 keys, a write takes 0.1 ms. More maps, or sync.Map, would make writes
// cheaper and reads more expensive.
type shards [256]atomic.Pointer[map[Hash]heldSecret]

func (s *shards) get(h Hash) (held heldSecret, ok bool) {
	if m := s[h[0]].Load(); m != nil {
		held, ok = (*m)[h]
	}
	return held, ok
}

// put sets the entry of a hash. If held is the zero value, put removes the entry.
func (s *shards) put(h Hash, held heldSecret) {
	next := make(map[Hash]heldSecret)
	if old := s[h[0]].Load(); old != nil {
		maps.Copy(next, *old)
	}
	if held.by != nil {
		next[h] = held
	} else {
		delete(next, h)
	}
	s[h[0]].Store(&next)
}
