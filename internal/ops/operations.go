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

type Config struct {
	// Tables are this node's copies, which the Store keeps up to date.
	Tables *access.Tables
	Store  Store

	// Forgotten has the tombstones, and hashes the vehicles in the audit.
	Forgotten *access.Forgotten

	// State returns the newest state, even if it is not stored yet.
	State  func(context.Context, vehicle.ID) (s vehicle.State, ok bool, err error)
	Append func(context.Context, []vehicle.Sample) error
	// MaxAge is of a reading: a verdict from an older one is stale.
	MaxAge time.Duration

	Fleet *fleet.Table
	// Filled returns an error while Fleet is incomplete or lags.
	Filled func() error

	Changes *Changes

	// RoadsDoubted counts, by reason, the evidence of roads that was not believed of the source with
	// this [access.Credential.Number].
	RoadsDoubted func(number uint32) map[string]int64

	AdminKey access.Hash
	// KeyDir has the admin key's file.
	KeyDir string

	Now func() time.Time // if nil, time.Now
	Log *slog.Logger     // may be nil
}

// Store writes no audit events by itself. When a method returns nil, the record is durable and in
// this node's tables. Errors wrap [access.ErrNotFound], [access.ErrExists], or the error of
// Update's change.
type Store interface {
	Create(ctx context.Context, c access.Credential) error
	// Update may call change several times, and stores nothing if it fails. Only Listed credentials
	// can be updated after their end.
	Update(ctx context.Context, kind access.Kind, name string,
		change func(*access.Credential) error) (access.Credential, error)
	Audit(ctx context.Context, e access.Event) error
	// AuditPage returns events with numbers below before (0: all), newest first, and the before of
	// the next page, or 0.
	AuditPage(ctx context.Context, before uint64, limit int) (events []access.Event, older uint64, err error)

	// Forget deletes everything about a vehicle and refuses its telemetry; Allow accepts it again.
	Forget(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	// Bury forgets the vehicles of receipts, and returns how many of them were not forgotten before.
	Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error)

	BackupKey(ctx context.Context) (string, error)
	Backup(ctx context.Context, w io.Writer, version string) (records int, err error)
	// Restore checks the whole file, and then calls audited, which calls merge or returns an error.
	// Only merge changes the store. The error is [access.BadBackup] if the file is refused.
	Restore(
		ctx context.Context, from io.Reader, options access.RestoreOptions,
		audited func(info access.BackupInfo, merge func() error) error, progress func(done, total int),
	) (access.RestoreReport, error)
}

// Operations is safe for concurrent use.
type Operations struct {
	cfg      Config
	walks    chan struct{} // one element for each list in progress
	adminKey atomic.Pointer[access.Hash]
	rotating sync.Mutex // held while the admin key's file is replaced

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

// Close ends each call of [Operations.ServeEvents].
func (p *Operations) Close() { p.close() }

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

func (p *Operations) Valid(who access.Actor, hash access.Hash) bool {
	if who.Admin {
		return p.isAdminKey(hash)
	}
	o, ok := p.cfg.Tables.Operators.Get(who.Name)
	return ok && o.Ended.IsZero() && o.Hash == hash
}

func (p *Operations) isAdminKey(hash access.Hash) bool {
	return subtle.ConstantTimeCompare(hash[:], p.adminKey.Load()[:]) == 1
}

func wireTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
