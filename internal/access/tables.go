package access

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Tokens is a node's copy of all tokens, kept up to date by a feed and asked
// for every query. Reading takes no lock. The zero value is empty.
type Tokens struct {
	byHash shards[*Grant]

	mu   sync.Mutex // guards byID and the order of writes
	byID map[string]*Grant
}

// Grant is a token as a node uses it: the record and what the node counts for
// it. The counters survive an update of the record.
type Grant struct {
	Token
	*usage
}

type usage struct {
	Budget   Budget
	lastUsed atomic.Int64 // Unix seconds
}

// lastUsedStep is the coarseness of "last used", which is kept for people and
// must not cost a shared write a query.
const lastUsedStep = 60

// Used notes that the token was used at now, to the minute.
func (g *Grant) Used(now time.Time) {
	if s := now.Unix(); s-g.lastUsed.Load() >= lastUsedStep {
		g.lastUsed.Store(s - s%lastUsedStep)
	}
}

// LastUsed returns when the token was last used on this node, to the minute, or
// the zero time.
func (g *Grant) LastUsed() time.Time {
	if s := g.lastUsed.Load(); s != 0 {
		return time.Unix(s, 0).UTC()
	}
	return time.Time{}
}

// Put adds or replaces a token's record.
func (t *Tokens) Put(tok Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := &Grant{Token: tok, usage: new(usage)}
	if old := t.byID[tok.ID]; old != nil {
		g.usage = old.usage
		if old.Hash != tok.Hash {
			t.byHash.delete(old.Hash)
		}
	}
	if t.byID == nil {
		t.byID = make(map[string]*Grant)
	}
	t.byID[tok.ID] = g
	t.byHash.set(tok.Hash, g)
}

// NoteUsed records a use that another node, or this one before its restart,
// has seen.
func (t *Tokens) NoteUsed(id string, at time.Time) {
	if g, ok := t.Get(id); ok && at.Unix() > g.lastUsed.Load() {
		g.lastUsed.Store(at.Unix())
	}
}

// Verify finds the token of a secret. It does the same work whether the secret
// is known or not. The error says in words meant for the caller why the secret
// does not count; the grant is returned beside it where there is one.
func (t *Tokens) Verify(secret []byte, now time.Time) (*Grant, error) {
	if err := Check(TokenKind, secret); err != nil {
		return nil, err
	}
	g, ok := t.byHash.get(HashOf(secret))
	if !ok {
		return nil, ErrNotKnown
	}
	return g, g.Usable(now)
}

// Get finds a token by its ID.
func (t *Tokens) Get(id string) (*Grant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.byID[id]
	return g, ok
}

// List returns all tokens, oldest first.
func (t *Tokens) List() []*Grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byID), func(a, b *Grant) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

// Len is the number of tokens, revoked and expired ones included.
func (t *Tokens) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// Sources is a node's copy of all sources. The zero value is empty.
type Sources struct {
	mu     sync.RWMutex
	byHash map[Hash]*Source
	byName map[string]*Source
}

// Put adds or replaces a source's record. A removed source stays known by name
// until it is dropped, and its key no longer counts.
func (t *Sources) Put(s Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byHash, t.byName = make(map[Hash]*Source), make(map[string]*Source)
	}
	if old := t.byName[s.Name]; old != nil {
		delete(t.byHash, old.Hash)
	}
	t.byName[s.Name] = &s
	t.byHash[s.Hash] = &s
}

// Verify finds the source of a key, or says why the key does not count.
func (t *Sources) Verify(key []byte, now time.Time) (*Source, error) {
	if err := Check(SourceKind, key); err != nil {
		return nil, err
	}
	h := HashOf(key)
	t.mu.RLock()
	s, ok := t.byHash[h]
	t.mu.RUnlock()
	if !ok {
		return nil, ErrNotKnown
	}
	return s, s.Usable(now)
}

// VerifyNamed is Verify for a key that comes with the source's name, as over
// MQTT.
func (t *Sources) VerifyNamed(name string, key []byte, now time.Time) (*Source, error) {
	s, err := t.Verify(key, now)
	if err == nil && s.Name != name {
		return nil, ErrNotKnown
	}
	return s, err
}

// Get finds a source by its name; removed ones are found too.
func (t *Sources) Get(name string) (*Source, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.byName[name]
	return s, ok
}

// List returns all sources that were not removed, by name.
func (t *Sources) List() []*Source {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*Source
	for _, s := range t.byName {
		if s.Removed.IsZero() {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Source) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// shards is a map from hash to T that is read without a lock: a reader loads
// one of 256 maps that are never changed, a writer replaces it. SHA-256 spreads
// the keys evenly. Writers must not run at the same time.
type shards[T any] struct {
	maps [256]atomic.Pointer[map[Hash]T]
}

func (s *shards[T]) get(h Hash) (v T, ok bool) {
	if m := s.maps[h[0]].Load(); m != nil {
		v, ok = (*m)[h]
	}
	return v, ok
}

func (s *shards[T]) set(h Hash, v T) {
	s.replace(h, func(m map[Hash]T) { m[h] = v })
}

func (s *shards[T]) delete(h Hash) {
	s.replace(h, func(m map[Hash]T) { delete(m, h) })
}

func (s *shards[T]) replace(h Hash, change func(map[Hash]T)) {
	next := make(map[Hash]T)
	if old := s.maps[h[0]].Load(); old != nil {
		maps.Copy(next, *old)
	}
	change(next)
	s.maps[h[0]].Store(&next)
}
