package ops

import (
	"context"
	"crypto/subtle"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// Config is what [Operations] are made of. All but Fleet, Filled, KeyDir, Now
// and Log are required.
type Config struct {
	// Tables are this node's copies. They are read for listings and written by the
	// Store alone.
	Tables *access.Tables
	Store  Store

	// Forgotten is this node's copy of the tombstones. A vehicle in it can be
	// granted to nobody. The audit names vehicles by its hashes, so that the audit
	// need not change when one is forgotten.
	Forgotten *access.Forgotten

	// State reads what is stored of a vehicle.
	State func(context.Context, vehicle.ID) (s vehicle.State, ok bool, err error)
	// MaxAge is how old readings may be and still answer a query.
	MaxAge time.Duration

	// Fleet has the vehicles that are listed; nil: this node lists none. Filled says why
	// they are not all in it yet; nil: they are.
	Fleet  Fleet
	Filled func() error

	// AdminKey is the hash of the key that opens everything.
	AdminKey access.Hash
	// KeyDir is the directory that holds the key's file; "": the key cannot
	// be rotated.
	KeyDir string

	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: nothing is logged
}

// Store keeps what the service knows, and audits nothing by itself. When a call returns nil, the
// record is on disk and this node's own tables hold it. Errors wrap
// [access.ErrNotFound] and [access.ErrExists] where those apply, and what a
// change function returned.
type Store interface {
	// Create refuses, with ErrExists, a name that is taken.
	Create(ctx context.Context, c access.Credential) error
	// Update applies change to the stored record, by compare-and-set: change may run
	// more than once. An error from it stores nothing. One that has ended, and is not
	// listed then, is ErrNotFound.
	Update(ctx context.Context, kind access.Kind, name string, change func(*access.Credential) error) (access.Credential, error)
	Audit(ctx context.Context, e access.Event) error
	// AuditPage returns the newest events before the one that is numbered, at most
	// limit, newest first; before 0 is the end. older is the before of the next
	// page, 0 if there is none.
	AuditPage(ctx context.Context, before uint64, limit int) (events []access.Event, older uint64, err error)

	// Forget erases a vehicle everywhere, Allow lets it report again.
	Forget(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	// Bury makes the vehicles of kept receipts forgotten.
	Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error)

	// BackupKey returns the key under which this service authenticates its backups.
	BackupKey(ctx context.Context) (string, error)
	// Backup writes a backup that names the version of the service.
	Backup(ctx context.Context, w io.Writer, version string) (records int, err error)
	// Restore merges a backup. Once the file was read, found whole and fit, and made by a
	// service that is trusted, and before anything is changed, it calls audited, which calls
	// merge or returns why not.
	Restore(
		ctx context.Context, from io.Reader, trust access.BackupTrust,
		audited func(info access.BackupInfo, merge func() error) error, progress func(done, total int),
	) (access.RestoreReport, error)
	// BadBackup reports whether an error of Restore is one of the file.
	BadBackup(err error) bool
}

// Operations are what an operator can do, by the API or by the console: by the same
// rules, and with the same traces in the audit. An error is one line that may be
// shown: a [Refusal].
type Operations struct {
	cfg      Config
	cursors  cursors
	walks    chan struct{}               // holds a token for each list that is being made
	adminKey atomic.Pointer[access.Hash] // replaced by RotateAdminKey
	rotating sync.Mutex                  // held while the key's file is replaced
}

// New makes the operations on a store.
func New(cfg Config) *Operations {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Operations{cfg: cfg, cursors: newCursors(), walks: make(chan struct{}, maxWalks)}
	p.adminKey.Store(&cfg.AdminKey)
	return p
}

// Identify returns the operator whose key it is, [access.Admin] for the admin key.
func (p *Operations) Identify(key string) (who access.Actor, hash access.Hash, ok bool) {
	hash = access.HashOf(key)
	if p.isAdminKey(hash) {
		return access.Admin, hash, true
	}
	o, err := p.cfg.Tables.Operators.Verify([]byte(key), p.cfg.Now())
	if err != nil {
		return who, hash, false
	}
	return access.Actor{Name: o.Name}, hash, true
}

// Valid reports whether a key that was identified is still the operator's.
func (p *Operations) Valid(who access.Actor, hash access.Hash) bool {
	if who.Admin {
		return p.isAdminKey(hash)
	}
	o, ok := p.cfg.Tables.Operators.Get(who.Name)
	return ok && o.Ended.IsZero() && o.Hash == hash
}

// isAdminKey compares hashes in constant time.
func (p *Operations) isAdminKey(hash access.Hash) bool {
	return subtle.ConstantTimeCompare(hash[:], p.adminKey.Load()[:]) == 1
}

// wireTime is a time as records keep it.
func wireTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
