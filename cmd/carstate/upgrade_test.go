package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// buildNext writes records of the next schema version, and reads both.
func buildNext(t *testing.T) (program string) {
	t.Helper()
	const check = "if v != read {"
	version := fmt.Sprintf("const SchemaVersion = %d\n", codec.SchemaVersion)
	file, err := filepath.Abs("../../internal/store/codec/seal.go")
	testkit.NoError(t, err)
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), version) != 1 || strings.Count(string(text), check) != 1 {
		t.Fatalf("seal.go: got %v, want %q and %q, once each", err, version, check)
	}
	next := strings.NewReplacer(version, fmt.Sprintf("const SchemaVersion = %d\n", codec.SchemaVersion+1), check,
		"if v != read && v != read-1 {").Replace(string(text))
	dir := t.TempDir()
	patched := filepath.Join(dir, "seal.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: patched}})
	testkit.NoError(t, err)
	for name, text := range map[string]string{patched: next, filepath.Join(dir, "overlay.json"): string(overlay)} {
		testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	program = filepath.Join(dir, "carstate-next")
	testkit.NoError(t, nodeprocess.Build(t.Context(), "../..", "", program, "-overlay",
		filepath.Join(dir, "overlay.json")))
	return program
}

// The old node answers from what it can read, logs newer records once, and overwrites none.
func TestUpgradeToNextFormat(t *testing.T) {
	startsPrograms(t)
	t.Parallel()
	began := time.Now()
	next := buildNext(t)
	t.Logf("the next version is built after %.1f s", time.Since(began).Seconds())
	server := clustertest.StartServer(t)
	flags := []string{"--nats", server.URL(), "--partitions", "16", "--max-age", "24h"}
	dir := t.TempDir()
	old := start(t, dir, flags...)
	ctx := testkit.Context(t)
	issued, err := old.IssueToken(ctx, "Ada")
	kept, keptErr := old.IssueToken(ctx, "Bob")
	key, keyErr := old.AddSource(ctx, "gateway")
	testkit.NoError(t, errors.Join(err, keptErr, keyErr))
	token, other := issued.AccessToken, kept.AccessToken
	r := new(reporting)
	for i := range 32 { // so that both nodes have partitions with cars
		r.vids = append(r.vids, fmt.Sprintf("car%d", i))
	}
	answersAgain := func(what string, by *process, token string, to ...*process) {
		t.Helper()
		since := time.Now()
		if err := until(testkit.Patience, func() error {
			for _, p := range to {
				if n, err := post(p, key, r.vids); err != nil || n != len(r.vids) {
					return fmt.Errorf("%d samples were taken: %w", n, err)
				}
			}
			return r.fresh(by, token, since)
		}); err != nil {
			t.Fatalf("%s: got %v, want an answer about every vehicle", what, err)
		}
		t.Logf("%s: every vehicle is answered again %.1f s later", what, time.Since(since).Seconds())
	}
	answersAgain("before", old, token, old)

	upgraded := startOf(t, next, t.TempDir(), flags...)
	answersAgain("beside a node of the next version", upgraded, token, old, upgraded)
	for _, vid := range r.vids {
		if err := knows(old, token, vid); err != nil {
			t.Errorf("%s at the old node: got %v, want an answer", vid, err)
		}
	}
	testkit.NoError(t, until(testkit.Patience, func() error {
		if old.log.Count("has stopped folding") == 0 {
			return errors.New("the old node still folds")
		}
		return nil
	}))
	answersAgain("once the old node gave up", upgraded, token, old)
	for _, stream := range []string{codec.States, codec.Telemetry} {
		if n := old.log.Count(`"stream":"` + stream + `","this_schema_version":3`); n > 1 {
			t.Errorf("the warning about %s: got it %d times, want once at most", stream, n)
		}
	}
	if status := old.carstate(t, "status"); !strings.Contains(status, "upgrade this node") ||
		!strings.Contains(status, codec.States) {
		t.Errorf("carstate status: got %s, want the advice to upgrade, for %s", status, codec.States)
	}
	testkit.NoError(t, wants(old.URL(nodeprocess.Admin)+"/readyz", http.StatusOK)())

	states, err := clustertest.JetStream(t, server.URL()).Stream(ctx, codec.States)
	testkit.NoError(t, err)
	for _, subject := range []string{"cursor.*", "chunk.*.*.*"} {
		if m, err := states.GetLastMsgForSubject(ctx, subject); err != nil || m.Data[0] != codec.SchemaVersion+1 {
			t.Errorf("the last %s: got %v, %v, want version %d", subject, m, err, codec.SchemaVersion+1)
		}
	}

	admin, err := upgraded.AdminClient()
	testkit.NoError(t, err)
	_, revokeErr := admin.RevokeToken(ctx, issued.ID)
	_, forgetErr := admin.Forget(ctx, "car0")
	testkit.NoError(t, errors.Join(revokeErr, forgetErr))
	r.vids = slices.Delete(r.vids, 0, 1)
	testkit.NoError(t, until(testkit.Patience, func() error {
		revoked, err := old.ask(drivingPath, token, r.vids[0])
		if err == nil && revoked.HTTP == http.StatusOK {
			err = fmt.Errorf("the revoked token: %+v", revoked)
		}
		if forgotten := knows(old, other, "car0"); err == nil && forgotten == nil {
			err = errors.New("the forgotten vehicle is answered")
		}
		return err
	}))
	if old.HasEnded() {
		t.Fatal("the old node: got its end, want that it goes on")
	}

	old.stop(t)
	replaced := startOf(t, next, dir, flags...)
	answersAgain("on two nodes of the next version", replaced, other, replaced, upgraded)
	answersAgain("on two nodes of the next version", upgraded, other, replaced, upgraded)
}
