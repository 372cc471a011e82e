package client

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"errors"
	"io"
	"net/http"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
)

func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	return c.download(ctx, w, "/v1/backup", wire.BackupType, "the backup is incomplete: see the service's log")
}

// BackupKey returns the key that authenticates backups.
func (c *Client) BackupKey(ctx context.Context) (wire.BackupKey, error) {
	return send[wire.BackupKey](ctx, c, http.MethodPost, "/v1/backup-key", nil)
}

// Restore makes an empty service restore a backup or, with options.Compare, any service compare it.
// After an error the service may continue; a restore that stopped halfway may be repeated.
func (c *Client) Restore(
	ctx context.Context, backup io.Reader, options access.RestoreOptions, progress func(done, total int),
) (report access.RestoreReport, err error) {
	if options.Anybody {
		options.Key = wire.AnyBackup
	}
	path := "/v1/restore"
	if options.Compare {
		path += "?compare"
	}
	header := http.Header{"Content-Type": {wire.BackupType}, wire.BackupKeyHeader: {options.Key}}
	resp, err := c.do(ctx, http.MethodPost, path, backup, header, true)
	if err != nil {
		return report, err
	}
	defer resp.Body.Close()
	where := shown(c.URL)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var l wire.RestoreLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return report, errorf("the server at %s is not carstate's admin listener (--admin-addr)", where)
		}
		switch {
		case l.Error != "":
			return report, errorf("the restore stopped halfway: %s; it may be repeated",
				access.OneLine(errors.New(l.Error)))
		case l.Report != nil:
			return *l.Report, nil
		}
		progress(l.Done, l.Total)
	}
	if ctx.Err() != nil {
		return report, ctx.Err()
	}
	return report, errorf("%s disconnected without a report: the restore may be repeated", where)
}

func (c *Client) Bury(ctx context.Context, receipts []access.ForgetReceipt) (wire.BuryReport, error) {
	return send[wire.BuryReport](ctx, c, http.MethodPost, "/v1/tombstones", wire.BuryRequest{Receipts: receipts})
}

// download returns an error with the text brokeOff if the response is cut off.
func (c *Client) download(ctx context.Context, w io.Writer, path, kind, brokeOff string) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil, nil, true)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != kind {
		return errorf("the server at %s is not carstate's admin listener (--admin-addr)", shown(c.URL))
	}
	for part := make([]byte, 32<<10); ; {
		n, err := resp.Body.Read(part)
		if _, err := w.Write(part[:n]); err != nil {
			return err
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return &Error{text: brokeOff}
		}
	}
}
