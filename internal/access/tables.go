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

// Credentials is a node's table of tokens, sources or operators. The zero value is empty.
type Credentials struct {
	hashes    sync.RWMutex // guards byHash and changes of hasUnread; unlike mu, it is never held for long
	byHash    map[Hash]*Grant
	hasUnread atomic.Bool

	mu     sync.Mutex // guards the fields below
	byName map[string]*Grant
	unread map[string]struct{} // names whose records this version cannot read
	usages map[string]*usage   // stored usage may arrive before the token
}

type Tokens struct{ Credentials }

type Sources struct{ Credentials }

type Operators struct{ Credentials }

type Tables struct {
	Tokens    Tokens
	Sources   Sources
	Operators Operators
}

func (t *Tables) Of(kind Kind) *Credentials {
	switch kind {
	case SourceKind:
		return &t.Sources.Credentials
	case OperatorKind:
		return &t.Operators.Credentials
	}
	return &t.Tokens.Credentials
}

// Grant is a credential with this node's counters, which are kept when the record changes.
type Grant struct {
	Credential
	*usage
}

// secrets also returns the hashes of secrets that have ended. g may be nil.
func (g *Grant) secrets() (all []Hash) {
	if g == nil {
		return nil
	}
	for _, e := range g.Earlier {
		all = append(all, e.Hash)
	}
	return append(all, g.Hash)
}

func (t *Credentials) lock() {
	t.mu.Lock()
	if t.byName == nil {
		t.byName, t.unread, t.usages = make(map[string]*Grant), make(map[string]struct{}), make(map[string]*usage)
	}
}

// Put also keeps ended credentials, to be refused with [ErrRevoked].
func (t *Credentials) Put(c Credential) {
	t.lock()
	defer t.mu.Unlock()
	delete(t.unread, c.Name)
	old := t.byName[c.Name]
	if old != nil && !old.Created.Equal(c.Created) { // an older credential had the name
		delete(t.usages, c.Name)
	}
	g := &Grant{c, t.usage(c.Name)}
	t.byName[c.Name] = g
	t.replace(old, g)
}

// replace puts g in place of old; either may be nil. The caller holds mu. A reader that holds hashes
// finds each secret in byHash, or hasUnread is set.
func (t *Credentials) replace(old, g *Grant) {
	t.hashes.Lock()
	defer t.hashes.Unlock()
	t.hasUnread.Store(len(t.unread) > 0)
	if t.byHash == nil {
		t.byHash = make(map[Hash]*Grant)
	}
	for _, hash := range old.secrets() {
		delete(t.byHash, hash)
	}
	for _, hash := range g.secrets() {
		t.byHash[hash] = g
	}
}

// Lose removes a credential whose record a newer version wrote. The record may have a new secret,
// so unknown secrets get [ErrUnread].
func (t *Credentials) Lose(name string) {
	t.lock()
	defer t.mu.Unlock()
	t.unread[name] = struct{}{}
	t.replace(t.byName[name], nil)
	delete(t.byName, name)
}

func (t *Tables) Unread() bool { return t.Tokens.hasUnread.Load() || t.Sources.hasUnread.Load() }

// The caller of usage holds mu.
func (t *Credentials) usage(id string) *usage {
	u := t.usages[id]
	if u == nil {
		u = new(usage)
		t.usages[id] = u
	}
	return u
}

func (t *Credentials) usageOf(id string) *usage {
	t.lock()
	defer t.mu.Unlock()
	return t.usage(id)
}

// verify does the same work for known and unknown secrets, so its duration tells nothing. Its error
// can be shown to the client.
func (t *Credentials) verify(kind Kind, secret []byte, now time.Time) (*Grant, error) {
	if err := Check(kind, secret); err != nil {
		return nil, err
	}
	hash := HashOf(secret)
	t.hashes.RLock()
	g, ok := t.byHash[hash]
	unread := t.hasUnread.Load()
	t.hashes.RUnlock()
	if !ok && unread {
		return nil, ErrUnread
	}
	if !ok {
		return nil, ErrNotKnown
	}
	if err := g.Usable(now); err != nil {
		return g, err
	}
	if slices.ContainsFunc(g.Earlier, func(e Earlier) bool { return e.Hash == hash && !now.Before(e.Until) }) {
		return g, ErrReplaced
	}
	return g, nil
}

// Verify returns no token with [ErrMalformed], [ErrChecksum], [ErrNotKnown] and [ErrUnread], but
// the token with [ErrRevoked], [ErrExpired] and [ErrReplaced].
func (t *Tokens) Verify(secret []byte, now time.Time) (*Grant, error) {
	kind := TokenKind
	if bytes.HasPrefix(secret, []byte(SandboxKind)) {
		kind = SandboxKind
	}
	return t.verify(kind, secret, now)
}

// Verify also notes the use or the refusal. For an access token, the error is [ErrIsToken].
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

// VerifyNamed verifies a key that is sent with the source's name, as in MQTT. The key of another
// source is [ErrNotKnown]. A wrong key is counted as a refusal of the named source. A key with
// [ErrUnread] is not counted, because it may be valid.
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
		named.countKey(WrongKey, "the password is not the key of this source: "+why.Error(), now)
	}
	return g, err
}

// The client must not learn this reason.
var errOfAnother = errors.New("it is the key of another one")

func (t *Operators) Verify(key []byte, now time.Time) (*Grant, error) {
	return t.verify(OperatorKind, key, now)
}

// Get also returns ended credentials.
func (t *Credentials) Get(name string) (*Grant, bool) {
	t.lock()
	defer t.mu.Unlock()
	g, ok := t.byName[name]
	return g, ok
}

// All returns also ended credentials, oldest first.
func (t *Credentials) All() []*Grant {
	t.lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byName), func(a, b *Grant) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

var number = regexp.MustCompile("[0-9]+")

// List returns the credentials that have not ended, sorted by name: gw-2 is before gw-10.
func (t *Credentials) List() []*Grant {
	list := slices.DeleteFunc(t.All(), func(g *Grant) bool { return !g.Ended.IsZero() })
	keys := make(map[string]string, len(list)) // names with numbers padded to one length
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

// Len also counts revoked, removed and expired credentials.
func (t *Credentials) Len() int {
	t.lock()
	defer t.mu.Unlock()
	return len(t.byName)
}

// Expiring counts the credentials that are valid now and not then.
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
