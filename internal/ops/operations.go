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

// Config holds the dependencies of [Operations]. All fields are required except Fleet, Filled,
// Changes, RoadsDoubted, KeyDir, Now and Log.
type Config struct {
	// Tables are this node's copies of all credentials. Operations only reads them; the Store keeps
	// them up to date.
	Tables *access.Tables
	Store  Store

	// Forgotten is this node's copy of the tombstones. A forgotten vehicle cannot be added to a
	// grant. Forgotten also computes the keyed hashes that identify vehicles in the audit.
	Forgotten *access.Forgotten

	// State reads the newest state of a vehicle, even if it is not stored yet. If the vehicle has
	// no state, ok is false.
	State func(context.Context, vehicle.ID) (s vehicle.State, ok bool, err error)
	// Append stores samples as if a source had sent them.
	Append func(context.Context, []vehicle.Sample) error
	// MaxAge is the maximum age of a reading. A verdict that is based on an older reading is stale.
	MaxAge time.Duration

	// Fleet is the table of vehicles from which lists are made; it stores vids. Filled returns an
	// error while Fleet is incomplete or lags behind. If Fleet is nil, this node cannot list
	// vehicles. If Filled is nil, Fleet is always complete.
	Fleet  *fleet.Table
	Filled func() error

	// Changes has the changes of the vehicles in Fleet. If nil, this node has none.
	Changes *Changes

	// RoadsDoubted counts, by reason, what the source with this number showed of roads and was not
	// believed. If nil, this node has no map of roads.
	RoadsDoubted func(number uint32) NamedCounts

	// AdminKey is the hash of the admin key, whose holder may carry out every operation.
	AdminKey access.Hash
	// KeyDir is the directory of the admin key's file. If empty, the key cannot be rotated.
	KeyDir string

	Now func() time.Time // if nil, time.Now
	Log *slog.Logger     // if nil, nothing is logged
}

// Store stores credentials, the audit and tombstones, and makes backups. Its methods do not write
// audit events by themselves. When a method returns nil, the record is durable and this node's own
// tables contain it. If the cause of an error is [access.ErrNotFound], [access.ErrExists] or an
// error of change in Update, the error wraps this cause.
type Store interface {
	// Create stores a new credential. It returns ErrExists if the name is taken.
	Create(ctx context.Context, c access.Credential) error
	// Update applies change to the stored record by compare-and-set, so it may call change several
	// times. If change returns an error, nothing is stored. For a removed source or operator,
	// Update returns ErrNotFound; a revoked token can still be updated (see Listed in
	// [access.Policy]).
	Update(ctx context.Context, kind access.Kind, name string,
		change func(*access.Credential) error) (access.Credential, error)
	Audit(ctx context.Context, e access.Event) error
	// AuditPage returns at most limit events whose numbers are smaller than before, newest first.
	// If before is 0, it begins with the newest event. older is the value of before for the next
	// page, or 0 if there is none.
	AuditPage(ctx context.Context, before uint64, limit int) (events []access.Event, older uint64, err error)

	// Forget deletes everything about a vehicle and refuses its telemetry from then on. Allow
	// accepts telemetry of a forgotten vehicle again. Both return the vehicle's receipt as it is
	// after the call.
	Forget(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error)
	// Bury forgets again the vehicles of old forget receipts, and returns the number of vehicles
	// that were not forgotten before.
	Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error)

	// BackupKey returns the key with which this service authenticates its backups.
	BackupKey(ctx context.Context) (string, error)
	// Backup writes a backup to w and returns its number of records. The backup contains version,
	// the version of the service.
	Backup(ctx context.Context, w io.Writer, version string) (records int, err error)
	// Restore first reads the whole file and checks that it is complete, valid and from a trusted
	// service. Then it calls audited, which writes an audit event and calls merge, the only step
	// that changes the store. If audited does not call merge, it must return an error. With
	// options.Compare, it only compares.
	Restore(
		ctx context.Context, from io.Reader, options access.RestoreOptions,
		audited func(info access.BackupInfo, merge func() error) error, progress func(done, total int),
	) (access.RestoreReport, error)
	// BadBackup reports whether an error of Restore means that the backup file was refused.
	BadBackup(err error) bool
}

// Operations implements the operations of operators, for the API and the console. Its method
// Explain turns any error into a [Refusal]. Methods are safe for concurrent use.
type Operations struct {
	cfg      Config
	walks    chan struct{}               // one element for each list in progress; limits them to maxWalks
	adminKey atomic.Pointer[access.Hash] // RotateAdminKey replaces it
	rotating sync.Mutex                  // serializes replacements of the key's file
	budgets  sync.Map                    // by name of the operator: the [*access.Budget] of its operations

	closing context.Context // ended by close
	close   context.CancelFunc
}

// New returns the operations on the store in cfg.
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

// Identify returns the holder of a key, an operator or, for the admin key, [access.Admin], and the
// hash of the key. If the key is not valid, ok is false and who is the zero Actor.
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

// Valid reports whether the key with this hash is still the key of who, as Identify returned them.
// It is false after the key was replaced or the operator was removed.
func (p *Operations) Valid(who access.Actor, hash access.Hash) bool {
	if who.Admin {
		return p.isAdminKey(hash)
	}
	o, ok := p.cfg.Tables.Operators.Get(who.Name)
	return ok && o.Ended.IsZero() && o.Hash == hash
}

// isAdminKey compares a hash with that of the admin key, in the same time for every hash.
func (p *Operations) isAdminKey(hash access.Hash) bool {
	return subtle.ConstantTimeCompare(hash[:], p.adminKey.Load()[:]) == 1
}

// wireTime returns t in UTC, truncated to milliseconds, the precision of stored records.
func wireTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
