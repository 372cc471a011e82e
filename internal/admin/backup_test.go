package admin_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/opstest"
)

func TestBackupOverTheWire(t *testing.T) {
	s := start(t)
	s.store.BackupText = strings.Repeat("x", 5<<20)
	var got bytes.Buffer
	s.want(t, "HEAD", "/v1/backup", "", http.StatusOK, "")
	if err := s.Backup(t.Context(), &got); err != nil || got.Len() != len("v0-test\n")+5<<20 {
		t.Errorf("a backup: got %d bytes, %v; want %d", got.Len(), err, len("v0-test\n")+5<<20)
	}
	if e := s.store.Events(); len(e) != 1 || e[0].Action != "backup.take" {
		t.Errorf("the audit: got %+v, want one backup.take", e)
	}
	s.store.Fail("Backup", errors.New("the disk of V1 broke"))
	err := s.Backup(t.Context(), &got)
	if err == nil || !strings.Contains(err.Error(), "is incomplete") || strings.Contains(err.Error(), "V1") {
		t.Errorf("half a backup: got %v, want that it is incomplete, without V1", err)
	}
	s.store.Fail("Audit intended", errDisk)
	if err := s.Backup(t.Context(), &got); err == nil || !strings.Contains(err.Error(), "audit cannot be written") {
		t.Errorf("a backup without an audit: got %v, want that the audit cannot be written", err)
	}
}

func TestRestoreOverTheWire(t *testing.T) {
	s := start(t)
	s.store.RestoreSteps = 1000
	steps := 0
	report, err := s.Restore(t.Context(), strings.NewReader("a backup"), access.RestoreOptions{}, func(done, total int) {
		if steps++; done > total || total != 1000 {
			t.Errorf("the progress: got %d of %d, want at most 1000 of 1000", done, total)
		}
	})
	if err != nil || report.Kinds["state"].Kept != 2 || string(s.store.Restored) != "a backup" || steps == 0 {
		t.Errorf("a restore: got %+v, %v, progress %d times; want 2 states kept, and progress", report, err, steps)
	}
	if did, e := s.store.Did(), s.store.Events()[0]; !slices.Equal(did, []string{"Audit intended", "Restore"}) ||
		e.Action != "backup.restore" || e.Detail != "1000 records of 2026-11-20T12:00:00Z" {
		t.Errorf("a restore: got calls %q and %+v, want it after the audit of 1000 records", did, e)
	}
	errBadFile := access.BadBackup("this backup is cut off or damaged")
	for _, c := range []struct {
		bad    error
		fail   error
		steps  int
		status int
		text   string
	}{
		{errBadFile, nil, 0, http.StatusBadRequest, "cut off or damaged"},
		{access.ErrBusy, nil, 0, http.StatusConflict, "a restore is in progress"},
		{access.ErrNotEmpty, nil, 0, http.StatusConflict, "an empty service only"},
		{nil, fmt.Errorf("of kind source: %w", access.ErrExists), 9, 0, "of kind source: the name is taken; it may"},
		{nil, errors.New("the disk of V1 broke"), 0, http.StatusServiceUnavailable, "could not be confirmed"},
		{nil, errors.New("the disk of V1 broke"), 9, 0, "stopped halfway"},
	} {
		s.store.BadBackups, s.store.RestoreSteps = c.bad, c.steps
		s.store.Fail("Restore", c.fail)
		_, err := s.Restore(t.Context(), strings.NewReader("x"), access.RestoreOptions{}, func(int, int) {})
		if refused(t, "a restore", err, c.status, c.text); strings.Contains(err.Error(), "V1") {
			t.Errorf("a restore, %v, %v after %d: got %v, want it without V1", c.bad, c.fail, c.steps, err)
		}
	}
	if events := s.store.Events(); len(events) != 7 || events[6].Outcome != "failed" {
		t.Errorf("the audit: got %+v, want 7 events, the last failed", events)
	}
	s.store.Fail("Audit intended", errDisk)
	s.store.Did()
	if _, err := s.Restore(t.Context(), strings.NewReader("x"), access.RestoreOptions{},
		func(int, int) {}); err == nil || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("a restore without an audit: got %v, want that nothing was done", err)
	}
	if did := s.store.Did(); !slices.Equal(did, []string{"Audit intended"}) {
		t.Errorf("a restore without an audit: got calls %q, want Audit intended alone", did)
	}
	s.want(t, "POST", "/v1/restore", "{}", http.StatusUnsupportedMediaType, "")
	s.want(t, "POST", "/v1/restore", "x", http.StatusUnauthorized, "", header("Authorization", "Bearer csa_no"))
}

func TestBackupKeyOverTheWire(t *testing.T) {
	s := start(t)
	hers := s.addOperator(t, "ada")
	if k, err := hers.BackupKey(t.Context()); err == nil || k.Key != "" {
		t.Errorf("an operator who asks for the key: got %q, %v; want an error alone", k.Key, err)
	}
	if k, err := s.BackupKey(t.Context()); err != nil || k.Key != opstest.OwnBackupKey {
		t.Errorf("got key %+v, %v; want %s", k, err, opstest.OwnBackupKey)
	}
	s.store.Fail("Audit intended", errDisk)
	if k, err := s.BackupKey(t.Context()); err == nil || k.Key != "" {
		t.Errorf("the key without an audit: got %q, %v; want an error alone", k.Key, err)
	}
	s.store.Fail("Audit intended", nil)
	given, _ := access.NewSecret(access.BackupKind)
	for _, options := range []access.RestoreOptions{
		{}, {Key: given}, {Anybody: true}, {Compare: true, Key: given}, {Compare: true, Anybody: true},
	} {
		if _, err := s.Restore(t.Context(), strings.NewReader("x"), options, func(int, int) {}); err != nil ||
			s.store.Options != options {
			t.Errorf("a restore: got options %+v, %v; want %+v", s.store.Options, err, options)
		}
	}
	events := s.store.Events()
	if e := events[len(events)-1]; !strings.HasSuffix(e.Detail, "; not authenticated") {
		t.Errorf("the last event: got %+v, want a restore that is not authenticated", e)
	}
	if e := events[1]; e.Action != "backup-key.show" || !e.Admin {
		t.Errorf("the second event: got %+v, want backup-key.show by the admin key", e)
	}
	for _, bad := range []string{"csb_x", hers.Key, "Unauthenticated"} {
		_, err := s.Restore(t.Context(), strings.NewReader("x"), access.RestoreOptions{Key: bad}, func(int, int) {})
		if refused(t, "a key of another form", err, http.StatusBadRequest, ""); strings.Contains(err.Error(), bad) {
			t.Errorf("a key of another form: got %v, want an error without %s", err, bad)
		}
	}
}

func TestReceiptsOverTheWire(t *testing.T) {
	s := start(t)
	good := access.ForgetReceipt{Format: access.ReceiptFormat, Vehicle: strings.Repeat("ab", 32), ForgottenAt: noon}
	if r, err := s.Bury(t.Context(), []access.ForgetReceipt{good}); err != nil || r.Buried != 1 {
		t.Errorf("got %+v, %v; want 1 buried", r, err)
	}
	short, foreign, timeless := good, good, good
	short.Vehicle, foreign.Format = "ab", "other"
	timeless.ForgottenAt = access.ForgetReceipt{}.ForgottenAt
	for _, bad := range []access.ForgetReceipt{short, foreign, timeless} {
		if _, err := s.Bury(t.Context(), []access.ForgetReceipt{good, bad}); err == nil ||
			!strings.Contains(err.Error(), "receipt 2") {
			t.Errorf("the receipt %+v: got %v, want an error about receipt 2", bad, err)
		}
	}
	if _, err := s.Bury(t.Context(), nil); err == nil {
		t.Error("no receipts: got no error, want one")
	}
	if n := len(s.store.Forgotten.All()); n != 1 {
		t.Errorf("the forgotten vehicles: got %d, want 1", n)
	}
	want := access.Event{Time: noon, Actor: "admin", Admin: true, Action: "vehicle.forget", Object: "receipts",
		Detail: "vehicles: 1", Outcome: "intended"}
	if events := s.store.Events(); len(events) != 1 || events[0] != want {
		t.Errorf("the audit: got %+v, want %+v", events, want)
	}
}
