package access

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Tokens is a node's copy of all tokens, kept up to date by a feed and asked
// for every query. Reading takes no lock. The zero value is empty.
type Tokens struct {
	byHash shards[held[*Grant]]

	mu     sync.Mutex // guards what follows and the order of writes
	byID   map[string]*Grant
	usages map[string]*usage // by ID; what was stored may be known before the token is
}

// Grant is a token as a node uses it: the record and what the node counts for
// it. The counters survive an update of the record.
type Grant struct {
	Token
	*usage
}

// Put adds or replaces a token's record.
func (t *Tokens) Put(tok Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = make(map[string]*Grant)
	}
	g, old := &Grant{Token: tok, usage: t.usage(tok.ID)}, t.byID[tok.ID]
	t.byID[tok.ID] = g
	now := secretsOf(g, tok.Hash, tok.Earlier)
	for hash, h := range now {
		t.byHash.set(hash, h)
	}
	if old != nil {
		for hash := range secretsOf(old, old.Hash, old.Earlier) {
			if _, kept := now[hash]; !kept {
				t.byHash.delete(hash)
			}
		}
	}
}

// usage returns the counters of a token; mu is held.
func (t *Tokens) usage(id string) *usage {
	u := t.usages[id]
	if u == nil {
		if t.usages == nil {
			t.usages = make(map[string]*usage)
		}
		u = new(usage)
		t.usages[id] = u
	}
	return u
}

// NoteUsage records what a node has stored as counted for a token, in place of
// what it had stored before. A node must not note what it stored itself while it
// runs: that is counted here already.
func (t *Tokens) NoteUsage(id, node string, stored Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.usage(id)
	if u.stored == nil {
		u.stored = make(map[string]Usage)
	}
	u.stored[node] = stored
	if !stored.LastUsed.IsZero() {
		raise(&u.lastUsed, stored.LastUsed.Unix())
	}
	if !stored.LastRefused.IsZero() {
		raise(&u.lastRefused, packRefusal(stored.LastRefused.Unix(), stored.Reason))
	}
}

// ForgetUsage drops what a node has stored for a token; the last use and refusal
// stay known.
func (t *Tokens) ForgetUsage(id, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.usage(id).stored, node)
}

// Usage is what all nodes together have counted for a token: what they stored,
// and what this node has counted since it started. Days that are yet to come, and
// uses and refusals on them, are not in it.
func (t *Tokens) Usage(id string, now time.Time) Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.usage(id)
	today := DayOf(now)
	all := u.running().upTo(today)
	for _, stored := range u.stored {
		all.Merge(stored.upTo(today))
	}
	all.Trim(now)
	all.Days = all.Days[:all.come(now)]
	return all
}

// UsageOn is the part of [Tokens.Usage] that was counted on the node given,
// which is this one: what it is to store.
func (t *Tokens) UsageOn(node, id string, now time.Time) Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.usage(id)
	last := DayOf(now) + daysToCome // as with the days, should the clock be behind
	mine := u.running().upTo(last)
	mine.Merge(u.stored[node].upTo(last))
	mine.Trim(now)
	return mine
}

// Counted yields every token for which this process has counted calls, and how
// many.
func (t *Tokens) Counted() iter.Seq2[string, int64] {
	t.mu.Lock()
	all := maps.Clone(t.usages)
	t.mu.Unlock()
	return func(yield func(string, int64) bool) {
		for id, u := range all {
			if n := u.counted(); n > 0 && !yield(id, n) {
				return
			}
		}
	}
}

// Verify finds the token of a secret. It does the same work whether the secret
// is known or not. The error says in words meant for the caller why the secret
// does not count; the grant is returned beside it where there is one.
func (t *Tokens) Verify(secret []byte, now time.Time) (*Grant, error) {
	kind := TokenKind
	if bytes.HasPrefix(secret, []byte(SandboxKind)) {
		kind = SandboxKind
	}
	if err := Check(kind, secret); err != nil {
		return nil, err
	}
	h, ok := t.byHash.get(HashOf(secret))
	if !ok {
		return nil, ErrNotKnown
	}
	if err := h.by.Usable(now); err != nil {
		return h.by, err
	}
	if h.ended(now) {
		return h.by, ErrReplaced
	}
	return h.by, nil
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

// Expiring is the number of tokens that count at now and have expired by then.
func (t *Tokens) Expiring(now, then time.Time) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.byID {
		if g.Usable(now) == nil && g.Usable(then) != nil {
			n++
		}
	}
	return n
}

// Sources is a node's copy of all sources. The zero value is empty.
type Sources struct {
	mu     sync.RWMutex
	byHash map[Hash]held[*knownSource]
	byName map[string]*knownSource
}

// knownSource is a source as a node uses it: the record and what the node has
// seen of it, which survives an update of the record.
type knownSource struct {
	Source
	*sighting
}

// Put adds or replaces a source's record. A removed source stays known by name
// until it is dropped, and its key no longer counts.
func (t *Sources) Put(s Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byHash, t.byName = make(map[Hash]held[*knownSource]), make(map[string]*knownSource)
	}
	known := &knownSource{s, new(sighting)}
	if old := t.byName[s.Name]; old != nil {
		for hash := range secretsOf(old, old.Hash, old.Earlier) {
			delete(t.byHash, hash)
		}
		if old.Created.Equal(s.Created) { // else another one of this name
			known.sighting = old.sighting
		}
	}
	t.byName[s.Name] = known
	maps.Copy(t.byHash, secretsOf(known, s.Hash, s.Earlier))
}

// Verify finds the source of a key, or says why the key does not count.
func (t *Sources) Verify(key []byte, now time.Time) (*Source, error) {
	if err := Check(SourceKind, key); err != nil {
		return nil, err
	}
	hash := HashOf(key)
	t.mu.RLock()
	h, ok := t.byHash[hash]
	t.mu.RUnlock()
	if !ok {
		return nil, ErrNotKnown
	}
	err := h.by.Usable(now)
	if err == nil && h.ended(now) {
		err = ErrReplaced
	}
	h.by.note(err, now)
	return &h.by.Source, err
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
	if !ok {
		return nil, false
	}
	return &s.Source, true
}

// Seen tells what this node has seen of a source since it started.
func (t *Sources) Seen(name string) Sighting {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s, ok := t.byName[name]; ok {
		return s.seen()
	}
	return Sighting{}
}

// List returns all sources that were not removed, by name.
func (t *Sources) List() []*Source {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*Source
	for _, s := range t.byName {
		if s.Removed.IsZero() {
			list = append(list, &s.Source)
		}
	}
	slices.SortFunc(list, func(a, b *Source) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// All returns all sources, removed ones included.
func (t *Sources) All() []*Source {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*Source, 0, len(t.byName))
	for _, s := range t.byName {
		all = append(all, &s.Source)
	}
	return all
}

// shards is a map from hash to T that is read without a lock: a reader loads
// one of 256 maps that are never changed, a writer replaces it. SHA-256 spreads
// the keys evenly. Writers must not run at the same time. With 100,000 keys a
// write takes 0.1 ms; more maps, or sync.Map, make it cheaper and cost readers.
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
