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

// VehicleHash identifies a forgotten vehicle: the HMAC-SHA-256 of its vid under a key of this
// installation, without which not even trying all vids would recover it.
type VehicleHash [sha256.Size]byte

// String returns 64 hexadecimal digits, as receipts, the audit and names of records have them.
func (h VehicleHash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first 16 digits, for texts where the whole hash would be too long.
func (h VehicleHash) Short() string { return h.String()[:16] }

func ParseVehicleHash(s string) (h VehicleHash, err error) {
	if len(s) == 2*len(h) {
		if _, err := hex.Decode(h[:], []byte(s)); err == nil {
			return h, nil
		}
	}
	return VehicleHash{}, fmt.Errorf("the hash of a vehicle has %d hexadecimal digits", 2*len(h))
}

// Tombstone is the record of a forgotten vehicle. It prevents new data of the vehicle from being
// stored after all other data are deleted.
type Tombstone struct {
	Vehicle   VehicleHash `json:"-"`
	Forgotten time.Time   `json:"forgotten"`
	// Lifted is when the vehicle was allowed again.
	Lifted time.Time `json:"lifted,omitzero"`
	// Opened is set when its samples are accepted again, some time after Lifted: the node that
	// folds them must receive Lifted first, or would ignore samples that another node has accepted.
	Opened bool `json:"opened,omitempty"`
	// Removed is set once all stored data that name the vehicle are deleted.
	Removed bool `json:"removed,omitempty"`
	// Quiet is the time from which no node stores its telemetry; zero while a node may. Last is the
	// sequence of the newest telemetry record at Quiet; no later one has samples of the vehicle.
	Quiet time.Time `json:"quiet,omitzero"`
	Last  uint64    `json:"last,omitempty"`
	// Erased is when all records that name the vehicle were removed, even the deletion marker of
	// its state. On one machine, no byte on the disk names it after this time.
	Erased time.Time `json:"erased,omitzero"`
	// Stale and Made are set when the vehicle is allowed again. They identify its older samples,
	// which stay forgotten: the samples with a sequence of at most Stale in the telemetry stream
	// that was created at Made (Unix nanoseconds).
	Stale uint64 `json:"stale,omitempty"`
	Made  int64  `json:"made,omitempty"`
	// Unread is set if a newer version wrote the tombstone. It may have been lifted, so this node
	// neither accepts samples of the vehicle nor uses stored ones.
	Unread bool `json:"-"`
}

func (t Tombstone) InForce() bool { return !t.Opened }

// Covers reports whether a stored sample must be ignored: each until the vehicle is allowed again,
// then those that Stale and Made identify. made is the creation time of the sample's telemetry
// stream, in Unix nanoseconds.
func (t Tombstone) Covers(seq uint64, made int64) bool {
	return t.Lifted.IsZero() || made == t.Made && seq <= t.Stale
}

// Forgotten is a node's copy of all tombstones, in which each sample is looked up. A feed keeps it
// up to date. The zero value has no key and no tombstones.
type Forgotten struct {
	mu         sync.RWMutex
	keys       []*Hasher
	tombstones map[VehicleHash]Tombstone
	count      atomic.Int64 // tombstones; while 0, no vid is hashed
}

// Hasher computes HMAC-SHA-256 under one key. It is safe for concurrent use.
type Hasher struct{ hashes sync.Pool }

// hashing is pooled, so that nothing is allocated for a sample.
type hashing struct {
	mac  hash.Hash
	text []byte
	sum  [sha256.Size]byte
}

func NewHasher(key []byte) *Hasher {
	return &Hasher{sync.Pool{New: func() any { return &hashing{mac: hmac.New(sha256.New, key)} }}}
}

func (k *Hasher) Sum(text string) [sha256.Size]byte {
	h := k.hashes.Get().(*hashing)
	defer k.hashes.Put(h)
	h.text = append(h.text[:0], text...)
	h.mac.Reset()
	h.mac.Write(h.text)
	h.mac.Sum(h.sum[:0])
	return h.sum
}

// SetKeys replaces the keys. The first is this installation's own; the others are of installations
// whose backups were restored here.
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

// Hash is the hash under this installation's own key. It panics before [Forgotten.SetKeys].
func (f *Forgotten) Hash(id vehicle.ID) VehicleHash {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.keys[0].Sum(string(id))
}

// Find returns the tombstone of a vehicle: one in force if there are several, under different keys.
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

// Has reports whether the vehicle is forgotten, so that none of its data may be kept.
func (f *Forgotten) Has(id vehicle.ID) bool {
	t, ok := f.Find(id)
	return ok && t.InForce()
}

// Covers is [Tombstone.Covers] of the vehicle's tombstone.
func (f *Forgotten) Covers(id vehicle.ID, seq uint64, made int64) bool {
	t, ok := f.Find(id)
	return ok && t.Covers(seq, made)
}

// Len counts the vehicles that are forgotten at present.
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

// All includes the tombstones of vehicles that were allowed again.
func (f *Forgotten) All() []Tombstone {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Values(f.tombstones))
}

const ReceiptFormat = "carstate-forget-receipt/1"

// ForgetReceipt does not contain the vid, so an operator can keep it for as long as needed. With
// it, a vehicle can be forgotten again after a restore.
type ForgetReceipt struct {
	Format      string    `json:"format"`
	Vehicle     string    `json:"vehicle"`
	ForgottenAt time.Time `json:"forgotten_at"`
	// AllowedAt is nil until the vehicle is allowed again.
	AllowedAt *time.Time `json:"allowed_at"`
	// ErasedBy is the time from which no byte on the disk names the vehicle, if the service keeps
	// running. It is nil once the vehicle is allowed again, and on a cluster, where NATS compacts
	// its files.
	ErasedBy *time.Time   `json:"erased_by"`
	Removed  RemovedCount `json:"removed"`
}

// RemovedCount counts what a forget has deleted; a repeated one finds nothing left.
type RemovedCount struct {
	States       int `json:"states"`
	TokenGrants  int `json:"token_grants"`
	SourceGrants int `json:"source_grants"`
}
