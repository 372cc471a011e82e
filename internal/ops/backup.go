package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"example.org/carstate/internal/access"
)

// The file's modification time is that of the last backup.
func backupFile(dir string) string { return filepath.Join(dir, "last-backup") }

func LastBackup(dir string) time.Time {
	info, err := os.Stat(backupFile(dir))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Backup writes nothing if its error is a [Refusal]; with another error, the trailer is missing, so
// that a reader notices.
func (p *Operations) Backup(
	ctx context.Context, by access.Actor, w io.Writer, version string,
) (records int, err error) {
	e := access.Event{Action: "backup.take", Object: "backup"}
	if err := p.Audited(ctx, by, e, func(context.Context) error { return nil }); err != nil {
		return 0, err
	}
	if records, err = p.cfg.Store.Backup(ctx, w, version); err != nil {
		return records, err
	}
	// Without this file, the backup is good all the same.
	f, err := os.OpenFile(backupFile(p.cfg.KeyDir), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = f.WriteString(e.Action + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		p.cfg.Log.Warn("cannot store the time of this backup", "error", access.OneLine(err))
	}
	return records, nil
}

// BackupKey needs the admin key, so that operators who can take backups cannot forge one.
func (p *Operations) BackupKey(ctx context.Context, by access.Actor) (key string, err error) {
	if !by.Admin {
		return "", errAdminOnly
	}
	e := access.Event{Action: "backup-key.show", Object: "backup"}
	err = p.Audited(ctx, by, e, func(ctx context.Context) (err error) {
		key, err = p.cfg.Store.BackupKey(ctx)
		return err
	})
	return key, err
}

// Restore needs the admin key, because a backup may contain operators. It continues if the client
// disconnects.
func (p *Operations) Restore(
	ctx context.Context, by access.Actor, from io.Reader, options access.RestoreOptions, progress func(done, total int),
) (access.RestoreReport, error) {
	if !by.Admin {
		return access.RestoreReport{}, errAdminOnly
	}
	if options.Key != "" && access.Check(access.BackupKind, []byte(options.Key)) != nil {
		return access.RestoreReport{}, Refusalf(http.StatusBadRequest,
			"not a backup key: `carstate operator backup-key` prints it")
	}
	audited := func(info access.BackupInfo, merge func() error) error {
		detail := fmt.Sprintf("%d records of %s", info.Records, info.Began.Format(time.RFC3339))
		if !info.Authenticated {
			detail += "; not authenticated"
		}
		e := access.Event{Action: "backup.restore", Object: "backup", Detail: detail}
		return p.auditedAtLength(ctx, by, e, func(context.Context) error { return merge() })
	}
	report, err := p.cfg.Store.Restore(context.WithoutCancel(ctx), from, options, audited, progress)
	_, bad := errors.AsType[access.BadBackup](err)
	switch {
	case err == nil:
		return report, nil
	case bad:
		return report, Refusalf(http.StatusBadRequest, "%v", err)
	}
	return report, p.Explain("backup.restore", err)
}

const maxReceipts = 100_000

// Bury forgets again the vehicles of receipts, unless they were allowed since. It may be repeated.
func (p *Operations) Bury(
	ctx context.Context, by access.Actor, receipts []access.ForgetReceipt,
) (buried int, err error) {
	if len(receipts) == 0 || len(receipts) > maxReceipts {
		return 0, Refusalf(http.StatusBadRequest, "the number of receipts is 1 to %d", maxReceipts)
	}
	for i, r := range receipts {
		if err := CheckReceipt(r); err != nil {
			return 0, Refusalf(http.StatusBadRequest, "receipt %d: %v", i+1, err)
		}
	}
	e := access.Event{Action: "vehicle.forget", Object: "receipts", Detail: fmt.Sprintf("vehicles: %d", len(receipts))}
	err = p.auditedAtLength(ctx, by, e, func(ctx context.Context) (err error) {
		buried, err = p.cfg.Store.Bury(ctx, receipts)
		return err
	})
	return buried, err
}

func CheckReceipt(r access.ForgetReceipt) error {
	if _, err := access.ParseVehicleHash(r.Vehicle); err != nil || r.Format != access.ReceiptFormat ||
		r.ForgottenAt.IsZero() {
		return errors.New("not a receipt of carstate forget --json")
	}
	return nil
}
