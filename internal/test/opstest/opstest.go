// Package opstest provides an in-memory [ops.Store] for tests of other packages.
package opstest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

// Store keeps its records in the tables from which an [ops.Operations] reads, and the order of the
// calls. Fail or the end of its context makes a method return an error.
type Store struct {
	access.Tables
	Forgotten access.Forgotten // its key is all zeros

	BackupText   string // what Backup writes after the version
	Restored     []byte // what Restore has read
	Options      access.RestoreOptions
	RestoreSteps int                           // that Restore reports
	BadBackups   error                         // that Restore returns before it changes anything; nil: none
	Before       func(context.Context, string) // called at the start of each method

	mu     sync.Mutex // guards the fields below
	events []access.Event
	order  []string
	fail   map[string]error // by method
}

func New() *Store {
	m := &Store{fail: make(map[string]error)}
	m.Forgotten.SetKeys(make([]byte, 32))
	return m
}

// The caller sets further fields.
func (m *Store) Config() ops.Config {
	return ops.Config{Store: m, Tables: &m.Tables, Forgotten: &m.Forgotten}
}

func (m *Store) begin(ctx context.Context, method string) error {
	m.mu.Lock()
	m.order = append(m.order, method)
	err := m.fail[method]
	m.mu.Unlock()
	if m.Before != nil {
		m.Before(ctx, method)
	}
	return errors.Join(err, ctx.Err())
}

// Fail names a method, for Audit with the outcome, as in "Audit intended", and for Create and
// Update with the kind, as in "Create token".
func (m *Store) Fail(method string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail[method] = err
}

// Did returns the calls since the last Did, as [Store.Fail] names them.
func (m *Store) Did() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	order := m.order
	m.order = nil
	return order
}

func (m *Store) Events() []access.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

func (m *Store) Create(ctx context.Context, c access.Credential) error {
	if err := m.begin(ctx, "Create "+c.Kind.Policy().Noun); err != nil {
		return err
	}
	if old, ok := m.Of(c.Kind).Get(c.Name); ok && old.Ended.IsZero() {
		return access.ErrExists
	}
	m.Of(c.Kind).Put(c)
	return nil
}

// Update calls change twice, as after a lost race.
func (m *Store) Update(
	ctx context.Context, kind access.Kind, name string, change func(*access.Credential) error,
) (access.Credential, error) {
	if err := m.begin(ctx, "Update "+kind.Policy().Noun); err != nil {
		return access.Credential{}, err
	}
	g, ok := m.Of(kind).Get(name)
	if !ok || !g.Ended.IsZero() && !kind.Policy().Listed {
		return access.Credential{}, access.ErrNotFound
	}
	lost, c := g.Credential, g.Credential // the result of a lost race
	if err := errors.Join(change(&lost), change(&c)); err != nil {
		return access.Credential{}, err
	}
	m.Of(kind).Put(c)
	return c, nil
}

func (m *Store) Audit(ctx context.Context, e access.Event) error {
	if err := m.begin(ctx, "Audit "+e.Outcome); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e)
	return nil
}

// AuditPage numbers events from 1.
func (m *Store) AuditPage(
	ctx context.Context, before uint64, limit int,
) (events []access.Event, older uint64, err error) {
	if err := m.begin(ctx, "AuditPage"); err != nil {
		return nil, 0, err
	}
	all := m.Events()
	if before != 0 {
		all = all[:min(int(before)-1, len(all))]
	}
	first := max(0, len(all)-limit)
	if first > 0 {
		older = uint64(first) + 1
	}
	events = all[first:]
	slices.Reverse(events)
	return events, older, nil
}

// Forget says that one state was removed, and erases the vehicle at once.
func (m *Store) Forget(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error) {
	if err := m.begin(ctx, "Forget"); err != nil {
		return access.ForgetReceipt{}, err
	}
	return m.bury(m.Forgotten.Hash(id)), nil
}

func (m *Store) bury(hash access.VehicleHash) access.ForgetReceipt {
	m.Forgotten.Put(access.Tombstone{Vehicle: hash, Forgotten: forgottenAt, State: access.StateErased})
	return access.ForgetReceipt{Format: access.ReceiptFormat, Vehicle: hash.String(), ForgottenAt: forgottenAt,
		Removed: access.RemovedCount{States: 1}}
}

var forgottenAt = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func (m *Store) Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error) {
	if err := m.begin(ctx, "Allow"); err != nil {
		return access.ForgetReceipt{}, err
	}
	r := m.bury(m.Forgotten.Hash(id))
	m.Forgotten.Put(access.Tombstone{Vehicle: m.Forgotten.Hash(id), Forgotten: forgottenAt, State: access.StateAllowed})
	return r, nil
}

func (m *Store) Bury(ctx context.Context, receipts []access.ForgetReceipt) (int, error) {
	if err := m.begin(ctx, "Bury"); err != nil {
		return 0, err
	}
	for _, r := range receipts {
		hash, err := access.ParseVehicleHash(r.Vehicle)
		if err != nil {
			return 0, err
		}
		m.bury(hash)
	}
	return len(receipts), nil
}

func (m *Store) BackupKey(ctx context.Context) (string, error) {
	return OwnBackupKey, m.begin(ctx, "BackupKey")
}

const OwnBackupKey = "csb_ownOfTheTestOwnOfTheTestOwnOf000000"

func (m *Store) Backup(ctx context.Context, w io.Writer, version string) (int, error) {
	if _, err := io.WriteString(w, version+"\n"+m.BackupText); err != nil {
		return 0, err
	}
	return 1, m.begin(ctx, "Backup")
}

// The merge of Restore reports RestoreSteps steps.
func (m *Store) Restore(
	ctx context.Context, from io.Reader, options access.RestoreOptions,
	audited func(access.BackupInfo, func() error) error, progress func(done, total int),
) (report access.RestoreReport, err error) {
	if m.BadBackups != nil {
		return report, m.BadBackups
	}
	if m.Restored, err = io.ReadAll(from); err != nil {
		return report, err
	}
	m.Options = options
	report.Backup = access.BackupInfo{Records: m.RestoreSteps, Began: forgottenAt, Authenticated: !options.Anybody}
	report.Kinds = map[string]access.RestoreCount{"state": {Restored: 1, Kept: 2}}
	return report, audited(report.Backup, func() error {
		for i := range m.RestoreSteps {
			progress(i+1, m.RestoreSteps)
		}
		return m.begin(ctx, "Restore")
	})
}
