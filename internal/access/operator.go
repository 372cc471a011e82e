package access

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Operator is the record of a person who runs the service. The audit names them;
// the record holds no secret.
type Operator struct {
	Name    string
	Hash    Hash // of the key
	Created time.Time
	Rotated time.Time // when the key was last replaced; zero: never
	Removed time.Time // zero: not removed
}

// AdminName is who the audit names for whoever holds the admin key. No operator
// can have it.
const AdminName = "admin"

// AddOperator makes an operator and the key to be shown once.
func AddOperator(name string, now time.Time) (Operator, string, error) {
	if err := CheckOperatorName(name); err != nil {
		return Operator{}, "", err
	}
	key, hash := NewSecret(OperatorKind)
	return Operator{Name: name, Hash: hash, Created: now.UTC().Truncate(time.Millisecond)}, key, nil
}

// CheckOperatorName says whether a text can name an operator. It can stand in a
// subject, a path and a log line as it is.
func CheckOperatorName(name string) error {
	switch {
	case !isPlainName(name):
		return errors.New("an operator's name has 1 to 64 letters, digits, '-' and '_'")
	case holdsSecret(name):
		return errNameIsSecret
	case strings.EqualFold(name, AdminName): // nobody may look like it in the audit
		return errors.New("the name admin is that of the admin key: choose another")
	}
	return nil
}

// Rotate replaces the key by the one of hash. The old one ends at once: unlike a
// program, a person can change over in no time.
func (o *Operator) Rotate(hash Hash, now time.Time) {
	o.Hash, o.Rotated = hash, now.UTC().Truncate(time.Millisecond)
}

// Operators is a node's copy of all operators. The zero value is empty.
type Operators struct {
	mu     sync.RWMutex // guards byName
	byName map[string]Operator
}

// Put adds or replaces an operator's record.
func (t *Operators) Put(o Operator) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = make(map[string]Operator)
	}
	t.byName[o.Name] = o
}

// Get finds an operator by name; removed ones are found too.
func (t *Operators) Get(name string) (Operator, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.byName[name]
	return o, ok
}

// List returns all operators that were not removed, by name.
func (t *Operators) List() []Operator {
	t.mu.RLock()
	defer t.mu.RUnlock()
	list := slices.SortedFunc(maps.Values(t.byName), func(a, b Operator) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(list, func(o Operator) bool { return !o.Removed.IsZero() })
}

// Verify finds the operator of a key, or says why the key does not count.
func (t *Operators) Verify(key []byte) (Operator, error) {
	if err := Check(OperatorKind, key); err != nil {
		return Operator{}, err
	}
	hash := HashOf(key)
	t.mu.RLock()
	defer t.mu.RUnlock()
	// There are a few, and a key is shown seldom: no index is worth its while.
	for _, o := range t.byName {
		if o.Hash == hash {
			if !o.Removed.IsZero() {
				return Operator{}, ErrRevoked
			}
			return o, nil
		}
	}
	return Operator{}, ErrNotKnown
}
