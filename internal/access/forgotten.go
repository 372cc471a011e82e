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

// VehicleHash identifies a vehicle that was forgotten: the HMAC-SHA-256 of its vid under a key of
// this installation. Without the key, the vid cannot be recovered, not even by trying all vids.
type VehicleHash [sha256.Size]byte

// String returns the hash as 64 hexadecimal digits. Receipts ([ForgetReceipt]), the audit and the
// names of records contain it in this form.
func (h VehicleHash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first 16 hexadecimal digits. They distinguish vehicles in texts, where the
// whole hash would be too long.
func (h VehicleHash) Short() string { return h.String()[:16] }

// ParseVehicleHash parses the output of [VehicleHash.String]. Any other text is an error.
func ParseVehicleHash(s string) (h VehicleHash, err error) {
	if len(s) == 2*len(h) {
		if _, err := hex.Decode(h[:], []byte(s)); err == nil {
			return h, nil
		}
	}
	return VehicleHash{}, fmt.Errorf("the hash of a vehicle has %d hexadecimal digits", 2*len(h))
}

// Tombstone is the record of a forgotten vehicle. It is kept after all other data of the vehicle
// are deleted, and prevents new data of the vehicle from being stored.
type Tombstone struct {
	Vehicle   VehicleHash `json:"-"` // a record contains it in another form
	Forgotten time.Time   `json:"forgotten"`
	// Lifted is the time when the vehicle was allowed again, or zero if it was not.
	Lifted time.Time `json:"lifted,omitzero"`
	// Opened is set when samples of the vehicle are accepted again. Opened is set some time after
	// Lifted, because the node that folds the vehicle's samples must receive Lifted first;
	// otherwise it would ignore samples that another node has accepted.
	Opened bool `json:"opened,omitempty"`
	// Removed is set once all stored data that name the vehicle have been deleted.
	Removed bool `json:"removed,omitempty"`
	// Quiet is the time from which no node stores telemetry of the vehicle; zero while a node may.
	// Last is the sequence number of the newest telemetry record when Quiet was first set; no later
	// record contains samples of the vehicle.
	Quiet time.Time `json:"quiet,omitzero"`
	Last  uint64    `json:"last,omitempty"`
	// Erased is the time when the erasure ended. All records that name the vehicle were then
	// removed, even the deletion marker in place of its state. Erased is zero until then. On one
	// machine, no byte on the disk names the vehicle after this time.
	Erased time.Time `json:"erased,omitzero"`
	// Stale and Made are set when the vehicle is allowed again. They identify its older samples,
	// which stay forgotten: the samples with a sequence of at most Stale in the telemetry stream
	// that was created at Made (Unix nanoseconds).
	Stale uint64 `json:"stale,omitempty"`
	Made  int64  `json:"made,omitempty"`
	// Unread is set if a newer version wrote the tombstone and this version cannot read it. In that
	// case, it is unknown whether the tombstone was lifted, so this node neither accepts samples of
	// the vehicle nor uses stored samples.
	Unread bool `json:"-"`
}

// InForce reports whether telemetry of the vehicle is refused.
func (t Tombstone) InForce() bool { return !t.Opened }

// Covers reports whether a stored sample of the vehicle must be ignored because the vehicle was
// forgotten: every sample until the vehicle is allowed again, then those that Stale and Made
// identify. seq is the sequence of the sample, and made is the creation time of its telemetry
// stream, in Unix nanoseconds.
func (t Tombstone) Covers(seq uint64, made int64) bool {
	return t.Lifted.IsZero() || made == t.Made && seq <= t.Stale
}

// Forgotten is a node's copy of all tombstones. A feed of changed records keeps it up to date. For
// every sample, the node looks up in this copy whether the vehicle is forgotten. The zero value has
// no key and no tombstones. Forgotten is safe for concurrent use.
type Forgotten struct {
	mu         sync.RWMutex // guards keys and tombstones
	keys       []*Hasher
	tombstones map[VehicleHash]Tombstone
	count      atomic.Int64 // number of tombstones; while it is 0, no vid is hashed
}

// Hasher computes HMAC-SHA-256 under one key. It is safe for concurrent use.
type Hasher struct{ hashes sync.Pool }

// hashing holds the buffers for one hash, so that they are not allocated for each sample.
type hashing struct {
	mac  hash.Hash
	text []byte
	sum  [sha256.Size]byte
}

// NewHasher returns a Hasher for a key.
func NewHasher(key []byte) *Hasher {
	return &Hasher{sync.Pool{New: func() any { return &hashing{mac: hmac.New(sha256.New, key)} }}}
}

// Sum returns the hash of a text.
func (k *Hasher) Sum(text string) [sha256.Size]byte {
	h := k.hashes.Get().(*hashing)
	defer k.hashes.Put(h)
	h.text = append(h.text[:0], text...)
	h.mac.Reset()
	h.mac.Write(h.text)
	h.mac.Sum(h.sum[:0])
	return h.sum
}

// SetKeys sets the keys under which vids are hashed, in place of those of an earlier call. The
// first key is this installation's own. The others are the keys of other installations whose
// backups were restored here.
func (f *Forgotten) SetKeys(keys ...[]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = nil
	for _, key := range keys {
		f.keys = append(f.keys, NewHasher(key))
	}
}

// Put adds or replaces a tombstone.
func (f *Forgotten) Put(t Tombstone) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tombstones == nil {
		f.tombstones = make(map[VehicleHash]Tombstone)
	}
	f.tombstones[t.Vehicle] = t
	f.count.Store(int64(len(f.tombstones)))
}

// Hash returns the keyed hash by which this installation identifies a vehicle in tombstones and in
// the audit. [Forgotten.SetKeys] must have been called before with at least one key; otherwise Hash
// panics.
func (f *Forgotten) Hash(id vehicle.ID) VehicleHash {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.keys[0].Sum(string(id))
}

// Find returns the tombstone of a vehicle. A vehicle may have several, under the hashes of
// different keys; if one is in force, Find returns that one. If there is no tombstone, ok is false.
func (f *Forgotten) Find(id vehicle.ID) (found Tombstone, ok bool) {
	if f.count.Load() == 0 {
		return Tombstone{}, false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, k := range f.keys {
		if t, has := f.tombstones[k.Sum(string(id))]; has && (!ok || t.InForce()) {
			found, ok = t, true
		}
	}
	return found, ok
}

// Has reports whether the vehicle is currently forgotten, so that none of its data may be kept.
func (f *Forgotten) Has(id vehicle.ID) bool {
	t, ok := f.Find(id)
	return ok && t.InForce()
}

// Covers is like [Tombstone.Covers], for the tombstone of a vehicle, if there is one.
func (f *Forgotten) Covers(id vehicle.ID, seq uint64, made int64) bool {
	t, ok := f.Find(id)
	return ok && t.Covers(seq, made)
}

// Len returns the number of vehicles that are currently forgotten.
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

// All returns every tombstone, including those of vehicles that were allowed again.
func (f *Forgotten) All() []Tombstone {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Values(f.tombstones))
}

// ReceiptFormat identifies a file as a receipt.
const ReceiptFormat = "carstate-forget-receipt/1"

// ForgetReceipt reports what was deleted of a vehicle. It does not contain the vid, so an operator
// can keep it for as long as needed. A restore of a backup can use it to forget the vehicle again.
type ForgetReceipt struct {
	Format      string    `json:"format"`
	Vehicle     string    `json:"vehicle"` // the keyed hash of the vid
	ForgottenAt time.Time `json:"forgotten_at"`
	// AllowedAt is the time when the vehicle was allowed again. It is nil until then.
	AllowedAt *time.Time `json:"allowed_at"`
	// ErasedBy is the time from which no byte on the disk names the vehicle, provided that the
	// service keeps running. It is nil once the vehicle is allowed again. On a cluster it is always
	// nil, because the bytes are erased when NATS compacts its files.
	ErasedBy *time.Time   `json:"erased_by"`
	Removed  RemovedCount `json:"removed"`
}

// RemovedCount holds the numbers of records that a forget deleted, by kind of record. A repeated
// forget finds nothing left to delete.
type RemovedCount struct {
	States       int `json:"states"`
	TokenGrants  int `json:"token_grants"`
	SourceGrants int `json:"source_grants"`
}
