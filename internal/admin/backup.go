package admin

import (
	"encoding/json/v2"
	"errors"
	"net/http"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

// takeBackup panics with [http.ErrAbortHandler] if the backup fails halfway, so that the client
// notices.
func (s *Server) takeBackup(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", wire.BackupType)
	if r.Method == http.MethodHead && !caller(r).ReadOnly {
		return nil // takes no backup
	}
	n, err := s.ops.Backup(r.Context(), caller(r), ops.Moving{W: w}, s.cfg.Version)
	if _, refused := errors.AsType[*ops.Refusal](err); refused {
		return err
	}
	if err != nil {
		s.cfg.Log.Error("a backup failed halfway", "error", access.OneLine(err))
		panic(http.ErrAbortHandler)
	}
	s.cfg.Log.Info("a backup was taken", "records", n)
	return nil
}

// restore returns an error only if it has sent nothing. Later, the last line that it sends has it.
func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
	if t := r.Header.Get("Content-Type"); t != wire.BackupType {
		return ops.Refusalf(http.StatusUnsupportedMediaType, "the body must be a backup: Content-Type: "+wire.BackupType)
	}
	out := ops.Moving{W: w}
	var lastSent time.Time // zero: nothing was sent
	send := func(l wire.RestoreLine) {
		if lastSent.IsZero() {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		lastSent = time.Now()
		// The restore continues after the client has disconnected.
		if json.MarshalWrite(out, l) == nil {
			_, _ = out.Write([]byte("\n"))
			_ = http.NewResponseController(w).Flush()
		}
	}
	body := ops.Moving{W: w, R: http.MaxBytesReader(w, r.Body, 64<<30)}
	options := access.RestoreOptions{Key: r.Header.Get(wire.BackupKeyHeader), Compare: r.URL.Query().Has("compare")}
	if options.Key == wire.AnyBackup {
		options.Key, options.Anybody = "", true
	}
	report, err := s.ops.Restore(r.Context(), caller(r), body, options, func(done, total int) {
		if time.Since(lastSent) >= 500*time.Millisecond {
			send(wire.RestoreLine{Done: done, Total: total})
		}
	})
	switch {
	case err == nil:
		send(wire.RestoreLine{Done: report.Backup.Records, Total: report.Backup.Records, Report: &report})
	case !lastSent.IsZero():
		send(wire.RestoreLine{Error: err.Error()})
	default:
		return err
	}
	return nil
}

func (s *Server) backupKey(r *http.Request, _ nothing) (wire.BackupKey, error) {
	key, err := s.ops.BackupKey(r.Context(), caller(r))
	return wire.BackupKey{Key: key}, err
}

func (s *Server) bury(r *http.Request, in wire.BuryRequest) (wire.BuryReport, error) {
	n, err := s.ops.Bury(r.Context(), caller(r), in.Receipts)
	return wire.BuryReport{Buried: n}, err
}
