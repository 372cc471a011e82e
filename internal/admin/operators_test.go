package admin_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestOperators(t *testing.T) {
	s := start(t)
	hers := s.addOperator(t, "ada")
	_, err := s.AddOperator(t.Context(), "ada", false)
	refused(t, "twice", err, http.StatusConflict, "the name of this operator is taken")
	testkit.NoError(t, second(hers.IssueToken(t.Context(), access.Credential{Developer: "Bo",
		Operations: access.AllOperations, Vehicles: access.AllVehicles()})))
	if e := newest(t, hers, 1)[0]; e.Actor != "ada" || e.Action != "token.issue" {
		t.Errorf("got event %+v, want token.issue by ada", e)
	}
	s.store.Did()
	again, err := s.RotateOperator(t.Context(), "ada")
	testkit.NoError(t, err)
	if _, err := hers.Tokens(t.Context()); err == nil {
		t.Error("the replaced key: got the list of tokens, want an error")
	}
	hers.Key = again.Key
	if list, err := hers.Operators(t.Context()); err != nil || len(list) != 1 || list[0].RotatedAt == nil {
		t.Errorf("got operators %+v, %v; want one with a rotated key", list, err)
	}
	for range 2 {
		if gone, err := s.RemoveOperator(t.Context(), "ada"); err != nil || gone.RemovedAt == nil {
			t.Errorf("RemoveOperator: got %+v, %v; want a time of removal", gone, err)
		}
	}
	want := []string{"Audit intended", "Update operator", "Audit intended", "Update operator"}
	if did := s.store.Did(); !slices.Equal(did, want) {
		t.Errorf("the keeper: got %q, want %q", did, want)
	}
	if _, err := hers.Tokens(t.Context()); err == nil {
		t.Error("the key of a removed operator: got the list of tokens, want an error")
	}
	for _, path := range []string{"/v1/operators/nobody", "/v1/operators/cso_x"} {
		s.want(t, "DELETE", path, "", http.StatusNotFound, "")
	}
	for _, name := range []string{"admin", "Admin", "ADMIN", "a b", "a.b", "ä", "", strings.Repeat("a", 65)} {
		s.want(t, "POST", "/v1/operators", `{"name":"`+name+`"}`, http.StatusBadRequest, "")
	}
}

// The audit shows that "admin" is not the holder of the admin key.
func TestAnOperatorGetsNoRightsByAName(t *testing.T) {
	s := start(t)
	key, hash := access.NewSecret(access.OperatorKind)
	s.store.Operators.Put(access.Credential{Kind: access.OperatorKind, Name: access.AdminName, Hash: hash,
		Created: noon})
	theirs := &client.Client{URL: s.URL, Key: key, HTTP: s.HTTP}
	for what, change := range map[string]func() error{
		"add an operator": func() error { _, err := theirs.AddOperator(t.Context(), "mallory", false); return err },
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
			_, err := theirs.Restore(t.Context(), strings.NewReader("x"), access.RestoreOptions{}, func(int, int) {})
			return err
		},
	} {
		refused(t, what, change(), http.StatusForbidden, "")
	}
	testkit.NoError(t, second(theirs.IssueToken(t.Context(), access.Credential{Developer: "Bo",
		Operations: access.AllOperations, Vehicles: access.AllVehicles()})))
	s.add(t, "gateway")
	if e := s.store.Events(); len(e) != 2 || e[0].Admin || !e[1].Admin {
		t.Errorf("the audit: got %+v, want an event of the operator and one of the admin key", e)
	}
}

func TestReadOnlyOperator(t *testing.T) {
	s := startOps(t, func(c *ops.Config) {
		c.State = func(context.Context, vehicle.ID) (s vehicle.State, ok bool, err error) { return s, false, nil }
		c.Changes = ops.NewChanges(c.Fleet, time.Minute, time.Now)
	})
	full := s.addOperator(t, "ada")
	reader, err := s.AddOperator(t.Context(), "grafana", true)
	testkit.NoError(t, err)
	if e := newest(t, s.Client, 1)[0]; e.Action != "operator.add" || e.Detail != "read-only" {
		t.Errorf("got event %+v, want operator.add of a read-only operator", e)
	}
	reader, err = s.RotateOperator(t.Context(), "grafana")
	testkit.NoError(t, err)
	if list, err := full.Operators(t.Context()); err != nil || list[0].ReadOnly || !list[1].ReadOnly {
		t.Errorf("got operators %+v, %v; want the second read-only", list, err)
	}
	events := len(s.store.Events())
	s.store.Did()
	for method, path := range calls(t) {
		if method != "GET" || path == "/v1/backup" {
			got := s.want(t, method, path, `{"x":`, http.StatusForbidden, "this key only reads", bearer(reader.Key))
			if strings.Count(got.body, "\n") != 1 {
				t.Errorf("%s %s: got %q, want one line", method, path, got.body)
			}
			continue
		}
		want := s.do(t, "HEAD", path, "", bearer(full.Key)).status
		s.want(t, "HEAD", path, "", want, "", bearer(reader.Key))
	}
	if did := s.store.Did(); len(s.store.Events()) != events || slices.ContainsFunc(did, func(call string) bool {
		return call != "AuditPage"
	}) {
		t.Errorf("a read-only operator: got calls %q, events %+v; want AuditPage alone", did, s.store.Events()[events:])
	}
}

func bearer(key string) func(*http.Request) { return header("Authorization", "Bearer "+key) }

func TestRotateAdminKey(t *testing.T) {
	dir := t.TempDir()
	key, err := ops.LoadOrCreateKey(dir)
	testkit.NoError(t, err)
	s := startOps(t, func(c *ops.Config) { c.AdminKey, c.KeyDir = access.HashOf(key), dir })
	s.Key = key
	rotated, err := s.RotateAdminKey(t.Context())
	if err != nil || rotated.File != filepath.Join(dir, "admin.key") {
		t.Fatalf("got %+v, %v; want the file admin.key", rotated, err)
	}
	if _, err := s.Tokens(t.Context()); err == nil {
		t.Error("the old admin key: got the list of tokens, want an error")
	}
	next, err := ops.LoadKey(dir)
	if err != nil || next == key {
		t.Fatalf("the file: got %v, the old key %t; want the new key", err, next == key)
	}
	s.Key = next
	if _, err := s.Tokens(t.Context()); err != nil {
		t.Errorf("the new admin key: got %v, want no error", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory: got %d files, %v; want 1", len(left), err)
	}

	// The file cannot be replaced.
	testkit.NoError(t, os.Rename(dir, dir+".away"))
	if _, err := s.RotateAdminKey(t.Context()); err == nil {
		t.Error("RotateAdminKey without a directory: got no error, want one")
	}
	if _, err := s.Tokens(t.Context()); err != nil {
		t.Errorf("the key after a rotation that failed: got %v, want no error", err)
	}
	if e := newest(t, s.Client, 2)[0]; e.Outcome != "failed" || e.Action != "admin-key.rotate" {
		t.Errorf("got event %+v, want a failed admin-key.rotate", e)
	}
}

func TestOperatorIsLimited(t *testing.T) {
	s := start(t)
	hers, his := s.addOperator(t, "ada"), s.addOperator(t, "bob")
	testkit.NoError(t, second(s.AddSource(t.Context(), access.Credential{Name: "car", Vehicles: access.AllVehicles()})))
	rate := access.Rate{Calls: 1, Window: time.Second}
	change := func(c *client.Client) error {
		_, err := c.ChangeSource(t.Context(), "car", access.Change{Rate: &rate})
		return err
	}
	before := len(newest(t, s.Client, 3))
	for range 3 {
		testkit.NoError(t, change(his))
	}
	if e := newest(t, s.Client, before+1); e[0].Actor != "bob" || e[1].Actor != "admin" {
		t.Errorf("got events %+v, want one by bob for three equal changes", e)
	}
	for i := range 600 {
		rate.Calls = int64(i + 2)
		if err := change(hers); err != nil {
			t.Fatalf("change %d: got %v, want no error", i, err)
		}
	}
	rate.Calls = 1000
	refused(t, "too many changes", change(hers), http.StatusTooManyRequests, "wait 1 s")
	for who, c := range map[string]*client.Client{"another": his, "the admin key": s.Client} {
		if rate.Calls++; change(c) != nil {
			t.Errorf("a change by %s: got an error, want none", who)
		}
	}
}
