package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"carstate/internal/access"
	"carstate/internal/admin"
)

// store answers as a store would that does what its fields say.
type store struct {
	chunks   int // of a backup, 1 MiB each
	fail     error
	steps    int // progress told by a restore
	restored bytes.Buffer
	buried   []access.ForgetReceipt
}

var errBadFile = errors.New("this backup is cut off or damaged")

func (s *store) Backup(_ context.Context, w io.Writer, version string) (int, error) {
	if _, err := io.WriteString(w, version+"\n"); err != nil {
		return 0, err
	}
	for range s.chunks {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return 0, err
		}
	}
	return s.chunks, s.fail
}

func (s *store) Restore(_ context.Context, r io.Reader, by string, progress func(done, total int)) (report access.RestoreReport, err error) {
	if _, err := io.Copy(&s.restored, r); err != nil {
		return report, err
	}
	for i := range s.steps {
		progress(i+1, s.steps)
	}
	report.Backup.Records = s.steps
	report.Kinds = map[string]access.RestoreCount{"state": {Restored: 1, Kept: 2}}
	return report, s.fail
}

func (*store) BadBackup(err error) bool { return errors.Is(err, errBadFile) }

func (s *store) Bury(_ context.Context, receipts []access.ForgetReceipt, by string) (int, error) {
	s.buried = append(s.buried, receipts...)
	return len(receipts), s.fail
}

func TestBackupOverTheWire(t *testing.T) {
	st := &store{chunks: 5}
	s := start(t, func(c *admin.Config) { c.Store = st })
	var got bytes.Buffer
	if err := s.Backup(t.Context(), &got); err != nil || got.Len() != len("v0-test\n")+5<<20 {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	if e := s.keeper.events; len(e) != 1 || e[0].Action != "backup.take" {
		t.Errorf("audited %+v", e)
	}
	st.fail = errors.New("the disk of V1 broke")
	err := s.Backup(t.Context(), &got)
	if err == nil || !strings.Contains(err.Error(), "broke off") || strings.Contains(err.Error(), "V1") {
		t.Errorf("half a backup: %v", err)
	}
	s.keeper.failing("Audit intended", errDisk)
	if err := s.Backup(t.Context(), &got); err == nil || !strings.Contains(err.Error(), "audit cannot be written") {
		t.Errorf("without an audit: %v", err)
	}
}

func TestRestoreOverTheWire(t *testing.T) {
	st := &store{steps: 1000}
	s := start(t, func(c *admin.Config) { c.Store = st })
	told := 0
	report, err := s.Restore(t.Context(), strings.NewReader("a backup"), func(done, total int) {
		if told++; done > total || total != 1000 {
			t.Errorf("%d of %d", done, total)
		}
	})
	if err != nil || report.Kinds["state"].Kept != 2 || st.restored.String() != "a backup" || told == 0 {
		t.Errorf("%+v, %v, told %d times", report, err, told)
	}
	for _, c := range []struct {
		fail   error
		steps  int
		status int // of the error, if there is one before the answer begins
		text   string
	}{
		{errBadFile, 0, http.StatusBadRequest, "cut off or damaged"},
		{access.ErrBusy, 0, http.StatusConflict, "a restore is under way"},
		{errors.New("the disk of V1 broke"), 0, http.StatusServiceUnavailable, "could not be confirmed"},
		{errors.New("the disk of V1 broke"), 9, 0, "stopped half-way"},
	} {
		st.fail, st.steps = c.fail, c.steps
		_, err := s.Restore(t.Context(), strings.NewReader("x"), func(int, int) {})
		e, ok := errors.AsType[*admin.Error](err)
		if !ok || e.Status != c.status || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "V1") {
			t.Errorf("%v after %d: %v", c.fail, c.steps, err)
		}
	}
	if a := s.do(t, "POST", "/v1/restore", "{}"); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("JSON: %d %s", a.status, a.body)
	}
	if a := s.do(t, "POST", "/v1/restore", "x", func(r *http.Request) { r.Header.Set("Authorization", "Bearer csa_no") }); a.status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %d %s", a.status, a.body)
	}
}

func TestReceiptsOverTheWire(t *testing.T) {
	st := new(store)
	s := start(t, func(c *admin.Config) { c.Store = st })
	good := access.ForgetReceipt{Format: access.ReceiptFormat, Vehicle: strings.Repeat("ab", 32), ForgottenAt: noon}
	if r, err := s.Bury(t.Context(), []admin.ForgetReceipt{good}); err != nil || r.Buried != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	short, foreign, timeless := good, good, good
	short.Vehicle, foreign.Format = "ab", "other"
	timeless.ForgottenAt = access.ForgetReceipt{}.ForgottenAt
	for _, bad := range []admin.ForgetReceipt{short, foreign, timeless} {
		if _, err := s.Bury(t.Context(), []admin.ForgetReceipt{good, bad}); err == nil || !strings.Contains(err.Error(), "receipt 2") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := s.Bury(t.Context(), nil); err == nil {
		t.Error("none at all")
	}
	if len(st.buried) != 1 {
		t.Errorf("%d were buried", len(st.buried))
	}
}
