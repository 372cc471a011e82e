package admin_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/ops"
)

// TestOperators checks that the API accepts an operator's key, and that the audit names the
// operator. An operator cannot add operators, and a removed key is invalid at once.
func TestOperators(t *testing.T) {
	s := start(t)
	hers := s.addOperator(t, "ada")
	if _, err := s.AddOperator(t.Context(), "ada"); !errors.Is(err, access.ErrExists) {
		t.Errorf("twice: %v", err)
	}
	if _, err := hers.IssueToken(t.Context(), access.Request{Developer: "Bo", Operations: access.AllOperations,
		Vehicles: access.AllVehicles()}); err != nil {
		t.Fatal(err)
	}
	if e := newest(t, hers, 1)[0]; e.Actor != "ada" || e.Action != "token.issue" {
		t.Errorf("got event %+v, want token.issue by ada", e)
	}
	s.store.Did()
	for what, change := range map[string]func() error{
		"add":       func() error { _, err := hers.AddOperator(t.Context(), "eve"); return err },
		"rotate":    func() error { _, err := hers.RotateOperator(t.Context(), "ada"); return err },
		"remove":    func() error { _, err := hers.RemoveOperator(t.Context(), "ada"); return err },
		"admin key": func() error { _, err := hers.RotateAdminKey(t.Context()); return err },
	} {
		refused(t, what+" by an operator", change(), http.StatusForbidden, "")
	}
	if did := s.store.Did(); len(did) != 0 {
		t.Errorf("a refused operation reached the store: %v", did)
	}

	again, err := s.RotateOperator(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hers.Tokens(t.Context()); err == nil {
		t.Error("the replaced key still opens the API")
	}
	hers.Key = again.Key
	if list, err := hers.Operators(t.Context()); err != nil || len(list) != 1 || list[0].RotatedAt == nil {
		t.Errorf("got operators %+v, %v; want one with a rotated key", list, err)
	}
	for range 2 {
		if gone, err := s.RemoveOperator(t.Context(), "ada"); err != nil || gone.RemovedAt == nil {
			t.Errorf("removed: %+v, %v", gone, err)
		}
	}
	want := []string{"Audit intended", "Update operator", "Audit intended", "Update operator"}
	if did := s.store.Did(); !slices.Equal(did, want) {
		t.Errorf("the keeper was asked for %v", did)
	}
	if _, err := hers.Tokens(t.Context()); err == nil {
		t.Error("the key of a removed operator still opens the API")
	}
	for _, path := range []string{"/v1/operators/nobody", "/v1/operators/cso_x"} {
		s.want(t, "DELETE", path, "", http.StatusNotFound, "")
	}
	for _, name := range []string{"admin", "a b", ""} {
		s.want(t, "POST", "/v1/operators", `{"name":"`+name+`"}`, http.StatusBadRequest, "")
	}
}

// TestAnOperatorGetsNoRightsByAName checks an operator whose record has the name "admin". It must
// have only an operator's rights, and the audit must show that it is not the holder of the admin
// key.
func TestAnOperatorGetsNoRightsByAName(t *testing.T) {
	s := start(t)
	key, hash := access.NewSecret(access.OperatorKind)
	s.store.Operators.Put(access.Credential{Kind: access.OperatorKind, Name: access.AdminName, Hash: hash,
		Created: noon})
	theirs := &client.Client{URL: s.URL, Key: key, HTTP: s.HTTP}
	for what, change := range map[string]func() error{
		"add an operator": func() error { _, err := theirs.AddOperator(t.Context(), "mallory"); return err },
		"rotate an operator": func() error {
			_, err := theirs.RotateOperator(t.Context(), access.AdminName)
			return err
		},
		"remove an operator": func() error {
			_, err := theirs.RemoveOperator(t.Context(), access.AdminName)
			return err
		},
		"rotate admin.key": func() error { _, err := theirs.RotateAdminKey(t.Context()); return err },
		"restore": func() error {
			_, err := theirs.Restore(t.Context(), strings.NewReader("x"), access.BackupTrust{}, func(int, int) {})
			return err
		},
	} {
		refused(t, what, change(), http.StatusForbidden, "")
	}
	if _, err := theirs.IssueToken(t.Context(), access.Request{Developer: "Bo", Operations: access.AllOperations,
		Vehicles: access.AllVehicles()}); err != nil {
		t.Fatal(err)
	}
	s.add(t, "gateway")
	if e := s.store.Events(); len(e) != 2 || e[0].Admin || !e[1].Admin {
		t.Errorf("audited %+v", e)
	}
}

// TestOperatorNeedsAudit checks that an operation that cannot be audited is not carried out.
func TestOperatorNeedsAudit(t *testing.T) {
	s := start(t)
	s.store.Fail("Audit intended", errDisk)
	if _, err := s.AddOperator(t.Context(), "ada"); err == nil {
		t.Error("added without an audit")
	}
	if did := s.store.Did(); slices.Contains(did, "Create operator") {
		t.Errorf("got the calls %v, want no Create operator", did)
	}
}

// TestRotateAdminKey checks that the key file has mode 0600 and holds the new key, and that only
// the new key is valid. If the file cannot be written, nothing changes.
func TestRotateAdminKey(t *testing.T) {
	dir := t.TempDir()
	key, err := ops.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := startOps(t, func(c *ops.Config) { c.AdminKey, c.KeyDir = access.HashOf(key), dir })
	s.Key = key
	rotated, err := s.RotateAdminKey(t.Context())
	if err != nil || rotated.File != filepath.Join(dir, "admin.key") {
		t.Fatalf("got %+v, %v; want the file admin.key", rotated, err)
	}
	if _, err := s.Tokens(t.Context()); err == nil {
		t.Error("the old key still opens the API")
	}
	next, err := ops.LoadKey(dir)
	if err != nil || next == key {
		t.Fatalf("the file holds the old key: %v", err)
	}
	s.Key = next
	if _, err := s.Tokens(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files, %v", len(left), err)
	}

	// The directory is moved away, so that the file cannot be replaced.
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RotateAdminKey(t.Context()); err == nil {
		t.Error("rotated without a directory")
	}
	if _, err := s.Tokens(t.Context()); err != nil {
		t.Errorf("after a rotation that failed: %v", err)
	}
	if e := newest(t, s.Client, 2)[0]; e.Outcome != "failed" || e.Action != "admin-key.rotate" {
		t.Errorf("got event %+v, want a failed admin-key.rotate", e)
	}
}
