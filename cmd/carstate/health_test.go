package main_test

import (
	"net"
	"strings"
	"testing"

	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/testkit"
)

// The service listens on all addresses without TLS, as in deploy/docker/compose.yaml, and the
// commands use the same setting.
func TestCommandsInAContainer(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "--behind-proxy", "--admin-addr", "0.0.0.0:0")
	_, port, err := net.SplitHostPort(p.Address(nodeprocess.Admin))
	testkit.NoError(t, err)
	t.Setenv("CARSTATE_ADMIN_ADDR", "0.0.0.0:"+port)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"token", "issue", "--developer", "Ada Lovelace", "--vehicles", "all", "--data-dir", dir}, "cst_"},
		{[]string{"health"}, "ready"},
		{[]string{"health", "--live"}, ""},
	} {
		var stdout, stderr testkit.Buffer
		if code := run(t.Context(), c.args, &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), c.want) {
			t.Errorf("%q ended with %d: %s%s", c.args, code, &stdout, &stderr)
		}
	}
	p.stop(t)
	var stdout, stderr testkit.Buffer
	if code := run(t.Context(), []string{"health"}, &stdout, &stderr); code != exitError ||
		!strings.Contains(stderr.String(), "does not answer") {
		t.Errorf("the health of a service that ended: %d: %s%s", code, &stdout, &stderr)
	}
}
