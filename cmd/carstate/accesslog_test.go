package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"carstate/internal/testkit"
)

func TestAccessLogOfANode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	p := start(t, filepath.Join(t.TempDir(), "data"), "--access-log", file)
	token := p.issue(t)
	if _, err := p.ask("/api/ic/if_dt_tflow_car_driving_state", token, "NobodyKnowsMe"); err != nil {
		t.Fatal(err)
	}
	p.stop(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The nodes of these tests write logs in JSON.
	if n := strings.Count(string(text), `"outcome":"unknown"`); n != 1 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	if strings.Contains(string(text), token) || strings.Contains(string(text), "NobodyKnowsMe") {
		t.Errorf("the token or the vehicle is in it:\n%s", text)
	}
}

// TestSIGHUPReopensTheAccessLog checks that a node that receives SIGHUP opens its access log again.
// The test renames the file before the signal, as logrotate does.
func TestSIGHUPReopensTheAccessLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	p := start(t, filepath.Join(t.TempDir(), "data"), "--access-log", file)
	token := p.issue(t)
	ask := func() {
		t.Helper()
		if _, err := p.ask(drivingPath, token, "NobodyKnowsMe"); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(name string) func() bool {
		return func() bool {
			text, err := os.ReadFile(name)
			return err == nil && strings.Count(string(text), `"outcome":"unknown"`) == 1
		}
	}
	ask()
	testkit.Await(t, "the first line is written", holds(file))
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the file is made again", func() bool { _, err := os.Stat(file); return err == nil })
	ask()
	testkit.Await(t, "the second line is written", holds(file))
	if !holds(file + ".1")() {
		t.Error("the old file was written to after that")
	}
	p.stop(t)
}

// TestSIGHUPDoesNotEndANode checks that a node without an access log continues to run after SIGHUP.
func TestSIGHUPDoesNotEndANode(t *testing.T) {
	p := start(t, t.TempDir())
	token := p.issue(t)
	for n := 1; n <= 2; n++ {
		if err := p.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, "the node has taken the signal", func() bool {
			return p.HasEnded() || p.log.Count("reloaded the settings") == n
		})
		if a, err := p.ask(drivingPath, token, "NobodyKnowsMe"); err != nil || a.HTTP != 200 {
			t.Fatalf("after SIGHUP %d: got %+v, %v, want HTTP 200", n, a, err)
		}
	}
	p.stop(t)
	if p.log.Count(`"msg":"ending","reason":"terminated signal received"`) != 1 {
		t.Errorf("it ended before it was asked to:\n%s", p.log)
	}
}

func TestAccessLogThatCannotBeKept(t *testing.T) {
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"--access-log", filepath.Join(t.TempDir(), "no", "log")}, exitConfig,
			"check --access-log: cannot open the access log for writing: no such file or directory"},
		{[]string{"--access-log", "log", "--roles", "ingest", "--nats", "nats://127.0.0.1:1"}, exitConfig,
			"--access-log is for a node that answers queries"},
	} {
		args := []string{"serve", "--data-dir", filepath.Join(t.TempDir(), "data")}
		for _, a := range []string{"query", "ingest", "mqtt", "admin"} {
			args = append(args, "--"+a+"-addr", "127.0.0.1:0")
		}
		var out, errs bytes.Buffer
		code := run(context.Background(), append(args, c.args...), &out, &errs)
		if code != c.exit || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit %d: %s", c.args, code, &errs)
		}
	}
}
