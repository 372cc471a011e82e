package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	// The node of these tests logs JSON.
	if n := strings.Count(string(text), `"outcome":"unknown"`); n != 1 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	if strings.Contains(string(text), token) || strings.Contains(string(text), "NobodyKnowsMe") {
		t.Errorf("the token or the vehicle is in it:\n%s", text)
	}
}

func TestAccessLogThatCannotBeKept(t *testing.T) {
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"--access-log", filepath.Join(t.TempDir(), "no", "log")}, 1, "the access log cannot be opened for writing: no such file or directory"},
		{[]string{"--access-log", "log", "--roles", "ingest", "--nats", "nats://127.0.0.1:1"}, 2, "--access-log is for a node that answers queries"},
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
