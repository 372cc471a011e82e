package ops

import (
	"cmp"
	"context"
	"crypto/subtle"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/vehicle"
)

// Config configures [Operations]. Fleet, Filled, Changes, RoadsDoubted, KeyDir, Now and Log may be
// left out.
type Config struct {
	// Tables are this node's copies, which the Store keeps up to date.
	Tables *access.Tables
	Store  Store

	// Forgotten has the tombstones, and computes the hashes that identify vehicles in the audit.
	Forgotten *access.Forgotten

	// State reads the newest state of a vehicle, even if it is not stored yet.
	State  func(context.Context, vehicle.ID) (s vehicle.State, ok bool, err error)
	Append func(context.Context, []vehicle.Sample) error
	// MaxAge is the maximum age of the reading of a verdict that is not stale.
	MaxAge time.Duration

	// Fleet stores vids. Filled returns an error while Fleet is incomplete or lags behind. If Fleet
	// is nil, this node cannot list vehicles.
	Fleet  *fleet.Table
	Filled func() error

	Changes *Changes

	// RoadsDoubted counts, by reason, what the source with this number showed of roads and was not
	// believed.
	RoadsDoubted func(number uint32) NamedCounts

	// AdminKey is a hash.
	AdminKey access.Hash
	// KeyDir has the admin key's file. If empty, the key cannot be rotated.
	KeyDir string

	Now func() time.Time // if nil, time.Now
	Log *slog.Logger     // may be nil
}

// Store keeps credentials, the audit and tombstones. Its methods write no audit events by
// themselves. When one returns nil, the record is durable and in this node's tables. Its errors
// wrap [access.ErrNotFound], [access.ErrExists], or the error of change in Update.
type Store interface {
	Create(ctx context.Context, c access.Credential) error
	// Update applies change by compare-and-set, so it may call change several times. If change
	// returns an error, nothing is stored. A revoked token can still be updated (see Listed in
	// [access.Policy]); a removed source or operator cannot.
	Update(ctx context.Context, kind access.Kind, name string,
		change func(*access.Credential) error) (access.Credential, error)
	Audit(ctx context.Context, e access.Event) error
	// AuditPage returns at most limit events with numbers smaller than before, newest first; 0 is
	// the newest event. older is the before of the next page, or 0 if there is none.
	AuditPage(ctx context.Context, before uint64, limit int) (events []access.Event, older uint64, err error)

	// Forget deletes everything about a vehicle and refuses its telemetry from then on. Allow
	// accepts it again. Both return the receipt as it is after the call.
	Forget(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	// Bury forgets again the vehicles of receipts, and returns how many were not forgotten before.
	Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error)

	BackupKey(ctx context.Context) (string, error)
	Backup(ctx context.Context, w io.Writer, version string) (records int, err error)
	// Restore checks the whole file and then calls audited, which writes an audit event and calls
	// merge, the only step that changes the store. If audited does not call merge, it must return
	// an error. With options.Compare, it only compares.
	Restore(
		ctx context.Context, from io.Reader, options access.RestoreOptions,
		audited func(info access.BackupInfo, merge func() error) error, progress func(done, total int),
	) (access.RestoreReport, error)
	// BadBackup reports whether an error of Restore means that the file was refused.
	BadBackup(err error) bool
}

// Operations is safe for concurrent use.
type Operations struct {
	cfg      Config
	walks    chan struct{} // one element for each list in progress
	adminKey atomic.Pointer[access.Hash]
	rotating sync.Mutex // while the key's file is replaced
	budgets  sync.Map   // by name of the operator: [*access.Budget]

	closing context.Context
	close   context.CancelFunc
}

func New(cfg Config) *Operations {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	p := &Operations{cfg: cfg, walks: make(chan struct{}, maxWalks)}
	p.adminKey.Store(&cfg.AdminKey)
	p.closing, p.close = context.WithCancel(context.Background())
	return p
}

// Close ends the responses with changes, which would not end by themselves.
func (p *Operations) Close() { p.close() }

// Identify returns the holder of a valid key, and the key's hash.
func (p *Operations) Identify(key string) (who access.Actor, hash access.Hash, ok bool) {
	hash = access.HashOf(key)
	if p.isAdminKey(hash) {
		return access.Admin, hash, true
	}
	o, err := p.cfg.Tables.Operators.Verify([]byte(key), p.cfg.Now())
	if err != nil {
		return who, hash, false
	}
	return access.Actor{Name: o.Name, ReadOnly: o.ReadOnly}, hash, true
}

// Valid reports whether the hash is still that of who's key: not after a rotation or a removal.
func (p *Operations) Valid(who access.Actor, hash access.Hash) bool {
	if who.Admin {
		return p.isAdminKey(hash)
	}
	o, ok := p.cfg.Tables.Operators.Get(who.Name)
	return ok && o.Ended.IsZero() && o.Hash == hash
}

// isAdminKey takes the same time for every hash.
func (p *Operations) isAdminKey(hash access.Hash) bool {
	return subtle.ConstantTimeCompare(hash[:], p.adminKey.Load()[:]) == 1
}

// wireTime has the precision of stored records.
func wireTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
