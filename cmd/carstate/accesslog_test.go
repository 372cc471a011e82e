package main_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.org/carstate/internal/testkit"
)

// A line for a query has neither the token nor the vehicle. SIGHUP opens a renamed file again.
func TestAccessLogOfANode(t *testing.T) {
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
	testkit.NoError(t, os.Rename(file, file+".1"))
	testkit.NoError(t, p.Signal(syscall.SIGHUP))
	testkit.Await(t, "the file is made again", func() bool { _, err := os.Stat(file); return err == nil })
	ask()
	testkit.Await(t, "the second line is written", holds(file))
	if !holds(file + ".1")() {
		t.Error("the old file was written to after that")
	}
	p.stop(t)
	if text := readFile(t, file) + readFile(t, file+".1"); strings.Contains(text, token) ||
		strings.Contains(text, "NobodyKnowsMe") || strings.Count(text, `"outcome":"unknown"`) != 2 {
		t.Errorf("the token or the vehicle is in it, or it does not have two lines:\n%s", text)
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
