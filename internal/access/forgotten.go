package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/vehicle"
)

// VehicleHash is what is left of a vehicle that was forgotten: HMAC-SHA-256 of
// its vid under a key of this installation. Without the key nobody can tell
// which vehicle it was, not even by trying all vids.
type VehicleHash [sha256.Size]byte

// String is the hash in hexadecimal, as it stands in receipts, in the audit and
// in the names of records.
func (h VehicleHash) String() string { return hex.EncodeToString(h[:]) }

// Short is the beginning of the hash, which tells vehicles apart well enough for
// people.
func (h VehicleHash) Short() string { return h.String()[:16] }

// ParseVehicleHash reads what String wrote.
func ParseVehicleHash(s string) (h VehicleHash, err error) {
	if len(s) == 2*len(h) {
		if _, err := hex.Decode(h[:], []byte(s)); err == nil {
			return h, nil
		}
	}
	return VehicleHash{}, fmt.Errorf("the hash of a vehicle has %d hexadecimal digits", 2*len(h))
}

// Tombstone says that a vehicle was forgotten. It outlives all that was known of
// the vehicle and keeps it from coming back.
type Tombstone struct {
	Vehicle   VehicleHash
	Forgotten time.Time
	// Removed is set once all that is forbidden was taken away.
	Removed bool
	// Lifted is when the vehicle was allowed again; zero: it is not.
	Lifted time.Time
	// Opened is set when samples are taken in again. Between Lifted and that,
	// every node learns that what comes now counts.
	Opened bool
	// Quiet is the time since which no telemetry that names the vehicle is stored. Earlier
	// telemetry is at places up to Last. Zero: a node may still be storing some.
	Quiet time.Time
	Last  uint64
	// Erased is when the marker in place of its state was removed, and on one machine
	// the last byte that named it; zero: some may be left.
	Erased time.Time
	// Of a vehicle that was allowed again, samples at places up to Stale of
	// the telemetry that was made at Made stay forgotten.
	Stale uint64
	Made  int64
	// Unread is set if a newer version wrote the tombstone, which cannot be read. It counts as in
	// force; nobody knows whether it is, so nothing of the vehicle may be folded.
	Unread bool
}

// InForce reports whether nothing is taken in of the vehicle.
func (t Tombstone) InForce() bool { return !t.Opened }

// Covers reports whether a stored sample of the vehicle counts for nothing.
func (t Tombstone) Covers(place uint64, made int64) bool {
	return t.Lifted.IsZero() || made == t.Made && place <= t.Stale
}

// Forgotten is a node's copy of all tombstones, kept up to date by a feed and
// asked for every sample. The zero value has no key, and knows of none.
type Forgotten struct {
	mu     sync.RWMutex // guards what follows
	keys   []*vidKey
	stones map[VehicleHash]Tombstone
	count  atomic.Int64 // of stones: without any, nothing is hashed
}

// vidKey hashes vids under one key.
type vidKey struct{ hashers sync.Pool }

// hasher holds what a hash needs, so that none of it is made for each sample.
type hasher struct {
	mac hash.Hash
	vid []byte
	sum VehicleHash
}

func newVIDKey(key []byte) *vidKey {
	return &vidKey{sync.Pool{New: func() any { return &hasher{mac: hmac.New(sha256.New, key)} }}}
}

func (k *vidKey) hash(id vehicle.ID) VehicleHash {
	h := k.hashers.Get().(*hasher)
	defer k.hashers.Put(h)
	h.vid = append(h.vid[:0], id...)
	h.mac.Reset()
	h.mac.Write(h.vid)
	h.mac.Sum(h.sum[:0])
	return h.sum
}

// SetKeys sets the keys under which vehicles are hashed: the first is this
// installation's own, the others came with backups of other ones.
func (f *Forgotten) SetKeys(keys ...[]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = nil
	for _, key := range keys {
		f.keys = append(f.keys, newVIDKey(key))
	}
}

// Put adds or replaces a tombstone.
func (f *Forgotten) Put(t Tombstone) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stones == nil {
		f.stones = make(map[VehicleHash]Tombstone)
	}
	f.stones[t.Vehicle] = t
	f.count.Store(int64(len(f.stones)))
}

// Hash is the name under which this installation knows a vehicle that it must
// not name.
func (f *Forgotten) Hash(id vehicle.ID) VehicleHash {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.keys[0].hash(id)
}

// Find returns the tombstone of a vehicle. One that is in force comes before one
// that is not, where keys of several installations each have one.
func (f *Forgotten) Find(id vehicle.ID) (found Tombstone, ok bool) {
	if f.count.Load() == 0 {
		return Tombstone{}, false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, k := range f.keys {
		if t, has := f.stones[k.hash(id)]; has && (!ok || t.InForce()) {
			found, ok = t, true
		}
	}
	return found, ok
}

// Has reports whether nothing may be taken in or kept of the vehicle.
func (f *Forgotten) Has(id vehicle.ID) bool {
	t, ok := f.Find(id)
	return ok && t.InForce()
}

// Covers reports whether a sample of the vehicle that is stored at a place of
// the telemetry made at made counts for nothing.
func (f *Forgotten) Covers(id vehicle.ID, place uint64, made int64) bool {
	t, ok := f.Find(id)
	return ok && t.Covers(place, made)
}

// Len is the number of vehicles that are forgotten now.
func (f *Forgotten) Len() (n int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, t := range f.stones {
		if t.InForce() {
			n++
		}
	}
	return n
}

// All returns every tombstone.
func (f *Forgotten) All() []Tombstone {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := make([]Tombstone, 0, len(f.stones))
	for _, t := range f.stones {
		all = append(all, t)
	}
	return all
}

// ReceiptFormat marks a receipt, so that no other file is taken for one.
const ReceiptFormat = "carstate-forget-receipt/1"

// ForgetReceipt says what became of a vehicle. It does not name it: it can be
// kept for as long as needed, and shown to a restore.
type ForgetReceipt struct {
	Format      string    `json:"format"`
	Vehicle     string    `json:"vehicle"` // its keyed hash
	ForgottenAt time.Time `json:"forgotten_at"`
	// AllowedAt is when the vehicle was allowed again; nil: it is forgotten.
	AllowedAt *time.Time `json:"allowed_at"`
	// ErasedBy is when no byte that names it is left on the disk, unless the
	// service stands still. It is nil once the vehicle is allowed again, and on a
	// cluster, whose bytes go when NATS compacts its files.
	ErasedBy *time.Time   `json:"erased_by"`
	Removed  RemovedCount `json:"removed"`
}

// RemovedCount is what a forget removed, by store. Nothing is left to remove
// when it is asked for again.
type RemovedCount struct {
	States       int `json:"states"`
	TokenGrants  int `json:"token_grants"`
	SourceGrants int `json:"source_grants"`
}
