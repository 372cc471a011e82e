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

// Credentials is a node's copy of all credentials of one noun, kept up to date by a
// feed. A secret is looked up without a lock. The zero value is empty.
type Credentials struct {
	byHash shards[held]
	lost   atomic.Bool // whether unread holds a name

	mu     sync.Mutex // guards what follows and the order of writes
	byName map[string]*Grant
	unread map[string]struct{} // whose records this version cannot read
	usages map[string]*usage   // by name; what was stored may be known before the token is
}

// Tokens are the credentials that are shown with every query.
type Tokens struct{ Credentials }

// Sources are the credentials that are shown with telemetry.
type Sources struct{ Credentials }

// Operators are the credentials that are shown with what only operators may do.
type Operators struct{ Credentials }

// Tables are all credentials that a node knows. The zero value is empty.
type Tables struct {
	Tokens    Tokens
	Sources   Sources
	Operators Operators
}

// Of is the table that holds credentials of the kind.
func (t *Tables) Of(kind Kind) *Credentials {
	switch kind {
	case SourceKind:
		return &t.Sources.Credentials
	case OperatorKind:
		return &t.Operators.Credentials
	}
	return &t.Tokens.Credentials
}

// Grant is a credential as a node uses it: the record and what the node counts for
// it. The counters survive an update of the record.
type Grant struct {
	Credential
	*usage
}

// held is what a table keeps under a hash: whose secret it is, and until when it
// counts if it was replaced.
type held struct {
	by    *Grant
	until time.Time // zero: it is the current one
}

// secrets are all the secrets of a credential, those included that have ended: a
// caller who still uses one learns that it was replaced.
func (g *Grant) secrets() map[Hash]held {
	all := make(map[Hash]held, 1+len(g.Earlier))
	for _, e := range g.Earlier {
		all[e.Hash] = held{g, e.Until}
	}
	all[g.Hash] = held{by: g}
	return all
}

// Put adds or replaces a record. One that has ended stays known by name, and its
// secret no longer counts.
func (t *Credentials) Put(c Credential) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = make(map[string]*Grant)
	}
	delete(t.unread, c.Name)
	t.lost.Store(len(t.unread) > 0)
	old := t.byName[c.Name]
	if old != nil && !old.Created.Equal(c.Created) { // another one of this name
		delete(t.usages, c.Name)
	}
	g := &Grant{c, t.usage(c.Name)}
	t.byName[c.Name] = g
	now := g.secrets()
	for hash, h := range now {
		t.byHash.set(hash, h)
	}
	if old != nil {
		for hash := range old.secrets() {
			if _, kept := now[hash]; !kept {
				t.byHash.delete(hash)
			}
		}
	}
}

// Lose notes that the record of a credential cannot be read, because a newer version wrote it. The
// credential may have been revoked, so it does not count any more. A secret that is not known may be
// its new one, so it is [ErrUnread] from now on.
func (t *Credentials) Lose(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unread == nil {
		t.unread = make(map[string]struct{})
	}
	t.unread[name] = struct{}{}
	t.lost.Store(true)
	if old := t.byName[name]; old != nil {
		delete(t.byName, name)
		for hash := range old.secrets() {
			t.byHash.delete(hash)
		}
	}
}

// Unread reports whether the records of tokens or sources are missing because a newer version wrote
// them.
func (t *Tables) Unread() bool { return t.Tokens.lost.Load() || t.Sources.lost.Load() }

// usage returns the counters of a credential; mu is held.
func (t *Credentials) usage(id string) *usage {
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
func (t *Credentials) NoteUsage(id, node string, stored Usage) {
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
func (t *Credentials) ForgetUsage(id, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.usage(id).stored, node)
}

// Usage is what all nodes together have counted for a token: what they stored,
// and what this node has counted since it started. Days that are yet to come, and
// uses and refusals on them, are not in it.
func (t *Credentials) Usage(id string, now time.Time) Usage {
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

// UsageOn is the part of [Credentials.Usage] that was counted on the node given,
// which is this one: what it is to store.
func (t *Credentials) UsageOn(node, id string, now time.Time) Usage {
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
func (t *Credentials) Counted() iter.Seq2[string, int64] {
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

// verify finds the credential of a secret. It does the same work whether the secret is
// known or not. The error says in words meant for the caller why the secret does not
// count; the grant is returned beside it where there is one.
func (t *Credentials) verify(kind Kind, secret []byte, now time.Time) (*Grant, error) {
	if err := Check(kind, secret); err != nil {
		return nil, err
	}
	h, ok := t.byHash.get(HashOf(secret))
	if !ok && t.lost.Load() {
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

// Verify finds the token of a secret, or says why the secret does not count. The grant
// is returned beside an error where there is one.
func (t *Tokens) Verify(secret []byte, now time.Time) (*Grant, error) {
	kind := TokenKind
	if bytes.HasPrefix(secret, []byte(SandboxKind)) {
		kind = SandboxKind
	}
	return t.verify(kind, secret, now)
}

// Verify finds the source of a key and notes that it was shown, or says why the key
// does not count.
func (t *Sources) Verify(key []byte, now time.Time) (*Grant, error) {
	g, err := t.verify(SourceKind, key, now)
	if g != nil {
		g.note(err, now)
	}
	return g, err
}

// VerifyNamed is Verify for a key that comes with the source's name, as over
// MQTT.
func (t *Sources) VerifyNamed(name string, key []byte, now time.Time) (*Grant, error) {
	g, err := t.Verify(key, now)
	if err == nil && g.Name != name {
		return nil, ErrNotKnown
	}
	return g, err
}

// Verify finds the operator of a key, or says why the key does not count.
func (t *Operators) Verify(key []byte, now time.Time) (*Grant, error) {
	return t.verify(OperatorKind, key, now)
}

// Get finds a credential by its name; one that has ended is found too.
func (t *Credentials) Get(name string) (*Grant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.byName[name]
	return g, ok
}

// All returns all credentials, oldest first, those that have ended included.
func (t *Credentials) All() []*Grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byName), func(a, b *Grant) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

// List returns all credentials that have not ended, by name.
func (t *Credentials) List() []*Grant {
	list := slices.DeleteFunc(t.All(), func(g *Grant) bool { return !g.Ended.IsZero() })
	slices.SortFunc(list, func(a, b *Grant) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Len is the number of credentials, those that have ended or expired included.
func (t *Credentials) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byName)
}

// Expiring is the number of credentials that count at now and have expired by then.
func (t *Credentials) Expiring(now, then time.Time) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.byName {
		if g.Usable(now) == nil && g.Usable(then) != nil {
			n++
		}
	}
	return n
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
