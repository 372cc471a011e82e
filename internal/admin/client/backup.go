package client

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"errors"
	"io"
	"net/http"
	"strings"

	"carstate/internal/access"
	"carstate/internal/admin/wire"
)

// Backup writes a backup of the service to w.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	return c.download(ctx, w, "/v1/backup", wire.BackupType,
		"the backup is incomplete: see the service's log")
}

// BackupKey returns the key with which the service authenticates its backups.
func (c *Client) BackupKey(ctx context.Context) (wire.BackupKey, error) {
	return send[wire.BackupKey](ctx, c, http.MethodPost, "/v1/backup-key", nil)
}

// Restore merges a backup into the service. While the service restores, Restore calls progress with
// the numbers of records that are done and of all records.
func (c *Client) Restore(
	ctx context.Context, backup io.Reader, trust access.BackupTrust, progress func(done, total int),
) (report access.RestoreReport, err error) {
	if trust.Anybody {
		trust.Key = wire.AnyBackup
	}
	resp, where, err := c.stream(ctx, http.MethodPost, "/v1/restore", backup, trust.Key)
	if err != nil {
		return report, err
	}
	defer resp.Body.Close()
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

// Bury forgets again the vehicles of old forget receipts, for example after a restore of an older
// backup.
func (c *Client) Bury(ctx context.Context, receipts []access.ForgetReceipt) (wire.BuryReport, error) {
	return send[wire.BuryReport](ctx, c, http.MethodPost, "/v1/tombstones", wire.BuryRequest{Receipts: receipts})
}

// download writes the response of a GET call to w. The parameter kind is the media type that the
// response must have. If the response is cut off, download returns an error with the text brokeOff.
func (c *Client) download(ctx context.Context, w io.Writer, path, kind, brokeOff string) error {
	resp, where, err := c.stream(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != kind {
		return errorf("the server at %s is not carstate's admin listener (--admin-addr)", where)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Error{text: brokeOff}
	}
	return nil
}

// stream makes a call without a time limit, for a long request or response body. If backupKey is
// not empty, stream sends it in a header; only a restore needs one.
func (c *Client) stream(
	ctx context.Context, method, path string, body io.Reader, backupKey string,
) (_ *http.Response, where string, err error) {
	where = shown(c.URL)
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, body)
	if err != nil || req.URL.Host == "" {
		return nil, where, errorf("%s is not the URL of an admin listener, such as http://127.0.0.1:8082 "+
			"(--admin-addr)", where)
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	if body != nil {
		req.Header.Set("Content-Type", wire.BackupType)
	}
	if backupKey != "" {
		req.Header.Set(wire.BackupKeyHeader, backupKey)
	}
	via := directly
	if c.HTTP != nil {
		via = c.HTTP
	}
	patient := *via
	patient.Timeout = 0
	resp, err := patient.Do(req)
	if err != nil {
		return nil, where, unreachable(where, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, where, refused(where, resp)
	}
	return resp, where, nil
}
