package admin

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"carstate/internal/access"
)

// Store backs up and restores what the service keeps. Restore and Bury audit
// themselves as done by the operator named.
type Store interface {
	// Backup writes a backup that names the version of the service.
	Backup(ctx context.Context, w io.Writer, version string) (records int, err error)
	// Restore merges a backup; BadBackup tells an error of the file, before
	// which nothing was changed.
	Restore(ctx context.Context, r io.Reader, by string, progress func(done, total int)) (access.RestoreReport, error)
	BadBackup(err error) bool
	// Bury makes the vehicles of kept receipts forgotten.
	Bury(ctx context.Context, receipts []access.ForgetReceipt, by string) (buried int, err error)
}

// Limits of backups.
const (
	backupType  = "application/vnd.carstate.backup"
	maxBackup   = 64 << 30
	maxReceipts = 100_000
	// stallTimeout is how long a backup may stand still on its way.
	stallTimeout = time.Minute
	// progressEvery bounds how often a restore says how far it is.
	progressEvery = 500 * time.Millisecond
)

type (
	buryRequest struct {
		Receipts []access.ForgetReceipt `json:"receipts"`
	}
	// BuryReport says how many vehicles of receipts are forgotten now that
	// were not before.
	BuryReport struct {
		Buried int `json:"buried"`
	}
	// restoreLine is one line of the answer to a restore.
	restoreLine struct {
		Done   int                   `json:"done"`
		Total  int                   `json:"total"`
		Report *access.RestoreReport `json:"report,omitzero"`
		Error  string                `json:"error,omitzero"`
	}
)

// stream makes a call whose body or answer is no JSON value and may take long.
func (s *Server) stream(name string, do func(http.ResponseWriter, *http.Request) error) http.Handler {
	seconds := s.metrics.seconds.WithLabelValues(name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, code := s.cfg.Now(), http.StatusOK
		r, err := s.identify(w, r)
		if err == nil {
			err = do(w, r)
		}
		if err != nil {
			code = writeError(w, s.deeds.explain(name, err))
		}
		s.metrics.calls.WithLabelValues(name, strconv.Itoa(code)).Inc()
		seconds.Observe(s.cfg.Now().Sub(start).Seconds())
	})
}

// moving extends the listener's deadlines for as long as something moves.
type moving struct {
	w http.ResponseWriter
	r io.Reader
	c *http.ResponseController
}

func (m moving) Read(p []byte) (int, error) {
	if err := m.c.SetReadDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return m.r.Read(p)
}

func (m moving) Write(p []byte) (int, error) {
	if err := m.c.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return m.w.Write(p)
}

// takeBackup sends a backup. One that breaks off lacks its end, by which whoever
// reads it can tell.
func (s *Server) takeBackup(w http.ResponseWriter, r *http.Request) error {
	err := s.deeds.do(r.Context(), caller(r), access.Event{Action: "backup.take", Object: "backup"}, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", backupType)
	n, err := s.cfg.Store.Backup(r.Context(), moving{w: w, c: http.NewResponseController(w)}, s.cfg.Version)
	if err != nil {
		s.cfg.Log.Error("a backup broke off", "error", oneLine(err))
		panic(http.ErrAbortHandler)
	}
	s.cfg.Log.Info("a backup was taken", "records", n)
	return nil
}

// restore takes a backup and answers with lines that say how far it is; the last
// one holds the report, or what went wrong.
func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	if caller(r) != access.AdminName {
		return errAdminOnly // a backup may hold operators
	}
	if t := r.Header.Get("Content-Type"); t != backupType {
		return refuse(http.StatusUnsupportedMediaType, "the body must be a backup: Content-Type: "+backupType)
	}
	c := http.NewResponseController(w)
	out := moving{w: w, c: c}
	begun, told := false, time.Time{}
	send := func(l restoreLine) {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		// The restore goes on when its caller has gone: half of it helps nobody.
		if json.MarshalWrite(out, l) == nil {
			_, _ = out.Write([]byte("\n"))
			_ = c.Flush()
		}
	}
	body := moving{r: http.MaxBytesReader(w, r.Body, maxBackup), c: c}
	report, err := s.cfg.Store.Restore(context.WithoutCancel(r.Context()), body, caller(r), func(done, total int) {
		if now := time.Now(); now.Sub(told) >= progressEvery {
			told = now
			send(restoreLine{Done: done, Total: total})
		}
	})
	switch {
	case err == nil:
		send(restoreLine{Done: report.Backup.Records, Total: report.Backup.Records, Report: &report})
		return nil
	case s.cfg.Store.BadBackup(err):
		return refuse(http.StatusBadRequest, "%v", err)
	case errors.Is(err, access.ErrBusy):
		return refuse(http.StatusConflict, "%v", err)
	case !begun:
		return err
	}
	send(restoreLine{Error: s.deeds.explain("backup.restore", err).text})
	return nil
}

func (s *Server) bury(r *http.Request, in buryRequest) (BuryReport, error) {
	if len(in.Receipts) == 0 || len(in.Receipts) > maxReceipts {
		return BuryReport{}, refuse(http.StatusBadRequest, "receipts are 1 to %d", maxReceipts)
	}
	for i, x := range in.Receipts {
		if err := CheckReceipt(x); err != nil {
			return BuryReport{}, refuse(http.StatusBadRequest, "receipt %d: %v", i+1, err)
		}
	}
	n, err := s.cfg.Store.Bury(context.WithoutCancel(r.Context()), in.Receipts, caller(r))
	return BuryReport{n}, err
}

// CheckReceipt says whether a value is a receipt of a forgotten vehicle.
func CheckReceipt(r ForgetReceipt) error {
	if _, err := access.ParseVehicleHash(r.Vehicle); err != nil || r.Format != access.ReceiptFormat || r.ForgottenAt.IsZero() {
		return errors.New("this is no receipt of carstate forget --json")
	}
	return nil
}

// Backup writes a backup of the service to w.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	resp, where, err := c.stream(ctx, http.MethodGet, "/v1/backup", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if t := resp.Header.Get("Content-Type"); t != backupType {
		return errorf("what answers at %s is not carstate's admin listener (--admin-addr)", where)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errorf("the backup broke off: the service's log says why, if it still runs")
	}
	return nil
}

// Restore merges a backup into the service. progress is told how far it is.
func (c *Client) Restore(ctx context.Context, backup io.Reader, progress func(done, total int)) (report access.RestoreReport, err error) {
	resp, where, err := c.stream(ctx, http.MethodPost, "/v1/restore", backup)
	if err != nil {
		return report, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var l restoreLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return report, errorf("what answers at %s is not carstate's admin listener (--admin-addr)", where)
		}
		switch {
		case l.Error != "":
			return report, errorf("the restore stopped half-way: %s; it may be done again", oneLine(errors.New(l.Error)))
		case l.Report != nil:
			return *l.Report, nil
		}
		progress(l.Done, l.Total)
	}
	if ctx.Err() != nil {
		return report, ctx.Err()
	}
	return report, errorf("%s broke off without a report: the restore may be done again", where)
}

// Bury makes the vehicles of kept receipts forgotten.
func (c *Client) Bury(ctx context.Context, receipts []ForgetReceipt) (BuryReport, error) {
	return send[BuryReport](ctx, c, http.MethodPost, "/v1/tombstones", buryRequest{receipts})
}

// stream makes a call that may take as long as something moves.
func (c *Client) stream(ctx context.Context, method, path string, body io.Reader) (_ *http.Response, where string, err error) {
	where = shown(c.URL)
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, body)
	if err != nil || req.URL.Host == "" {
		return nil, where, errorf("%s is no URL of an admin listener: it looks like http://127.0.0.1:8082 (--admin-addr)", where)
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	if body != nil {
		req.Header.Set("Content-Type", backupType)
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
