package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/vehicle"
)

// VehicleHash is the HMAC-SHA-256 of a vid under a key of this installation. Without the key, not
// even trying all vids would recover the vid.
type VehicleHash [sha256.Size]byte

func (h VehicleHash) String() string { return hex.EncodeToString(h[:]) }

func (h VehicleHash) Short() string { return h.String()[:16] }

func ParseVehicleHash(s string) (h VehicleHash, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("the hash of a vehicle has %d hexadecimal digits", 2*len(h))
	}
	return VehicleHash(b), nil
}

// TombstoneState says which of a forgotten vehicle's data may still be stored.
type TombstoneState uint8

const (
	StateForgotten TombstoneState = iota // all
	StateRemoved                         // samples, and more may be on their way; no state, no grant
	StateQuiet                           // samples; no node stores more
	StateTrimmed                         // only the marker
	StateErased                          // nothing
	StateAllowed                         // only what was sent after Allow
)

// Tombstone prevents data of a forgotten vehicle from being stored again.
type Tombstone struct {
	Vehicle   VehicleHash    `json:"vehicle"`
	Forgotten time.Time      `json:"forgotten"` // also tells this forget from others of the vehicle
	State     TombstoneState `json:"state,omitzero"`
	Since     time.Time      `json:"since,omitzero"` // since when it has this state
	// Ends has the newest sequence number of each stream of telemetry at the start of StateQuiet.
	Ends []uint64 `json:"ends,omitempty"`
	// Seen is when this process received the tombstone, by the monotonic clock.
	Seen time.Time `json:"-"`
	// Unread: a newer version wrote it, so its state is unknown.
	Unread bool `json:"-"`
}

// InForce reports whether the vehicle's telemetry is refused.
func (t Tombstone) InForce() bool { return t.State < StateAllowed }

// Covers reports whether stored data of the vehicle must be ignored.
func (t Tombstone) Covers() bool { return t.State < StateErased || t.Unread }

// Forgotten is a node's copy of all tombstones. The zero value has no key and no tombstone.
type Forgotten struct {
	mu         sync.RWMutex
	keys       []*Hasher
	tombstones map[VehicleHash]Tombstone
	count      atomic.Int64 // of tombstones; while 0, no vid is hashed
}

// Hasher computes HMAC-SHA-256. It is safe for concurrent use.
type Hasher struct{ macs sync.Pool }

func NewHasher(key []byte) *Hasher {
	return &Hasher{sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

func (k *Hasher) Sum(text string) [sha256.Size]byte {
	mac := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	mac.Write([]byte(text))
	return [sha256.Size]byte(mac.Sum(nil))
}

// SetKeys takes this installation's own key first, and then those of restored backups.
func (f *Forgotten) SetKeys(keys ...[]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = nil
	for _, key := range keys {
		f.keys = append(f.keys, NewHasher(key))
	}
}

func (f *Forgotten) Put(t Tombstone) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tombstones == nil {
		f.tombstones = make(map[VehicleHash]Tombstone)
	}
	f.tombstones[t.Vehicle] = t
	f.count.Store(int64(len(f.tombstones)))
}

// Hash uses this installation's own key. It panics before [Forgotten.SetKeys].
func (f *Forgotten) Hash(id vehicle.ID) VehicleHash {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.keys[0].Sum(string(id))
}

// Of tombstones under different keys, Find returns the one in the earliest state.
func (f *Forgotten) Find(id vehicle.ID) (found Tombstone, ok bool) {
	if f.count.Load() == 0 {
		return Tombstone{}, false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, k := range f.keys {
		if t, has := f.tombstones[k.Sum(string(id))]; has && (!ok || t.State < found.State) {
			found, ok = t, true
		}
	}
	return found, ok
}

func (f *Forgotten) Has(id vehicle.ID) bool {
	t, ok := f.Find(id)
	return ok && t.InForce()
}

// Without removes forgotten vehicles; ok is false if there are none.
func (f *Forgotten) Without(v Vehicles) (_ Vehicles, ok bool) {
	gone := slices.DeleteFunc(v.Sorted(), func(id vehicle.ID) bool { return !f.Has(id) })
	return v.Without(gone...), len(gone) > 0
}

func (f *Forgotten) Covers(id vehicle.ID) bool {
	t, ok := f.Find(id)
	return ok && t.Covers()
}

func (f *Forgotten) Len() (n int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, t := range f.tombstones {
		if t.InForce() {
			n++
		}
	}
	return n
}

func (f *Forgotten) All() []Tombstone {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.AppendSeq(make([]Tombstone, 0, len(f.tombstones)), maps.Values(f.tombstones))
}

const ReceiptFormat = "carstate-forget-receipt/1"

// ForgetReceipt has no vid, so an operator can keep it, and forget the vehicle again after a
// restore.
type ForgetReceipt struct {
	Format      string     `json:"format"`
	Vehicle     string     `json:"vehicle"`
	ForgottenAt time.Time  `json:"forgotten_at"`
	AllowedAt   *time.Time `json:"allowed_at"`
	// ErasedBy is when no byte on the disk names the vehicle. It is nil after Allow, and on a
	// cluster, where NATS decides when it compacts its files.
	ErasedBy *time.Time   `json:"erased_by"`
	Removed  RemovedCount `json:"removed"`
}

type RemovedCount struct {
	States       int `json:"states"`
	TokenGrants  int `json:"token_grants"`
	SourceGrants int `json:"source_grants"`
}
