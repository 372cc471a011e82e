package access_test

import (
	"strings"
	"testing"

	"example.org/carstate/internal/access"
)

func TestIssueSandbox(t *testing.T) {
	tok, secret := created(t, access.Request{
		Kind: access.SandboxKind, Developer: "d", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
	}, noon)
	if !strings.HasPrefix(secret, "cstest_") || access.Check(access.SandboxKind, []byte(secret)) != nil ||
		tok.Kind != access.SandboxKind {
		t.Error("it is not a sandbox token's secret")
	}
	if tok.Vehicles.All() || tok.Vehicles.Len() != 11 || !tok.Vehicles.Include(access.SandboxJam) {
		t.Errorf("the grant covers %d vehicles", tok.Vehicles.Len())
	}
	var table access.Tokens
	table.Put(tok)
	g, err := table.Verify([]byte(secret), noon)
	if err != nil || !g.Sandbox() {
		t.Errorf("verified: %v", err)
	}
	real, _ := issue(t, "d", noon)
	if real.Sandbox() || real.Kind != access.TokenKind {
		t.Error("every token is a sandbox token")
	}
	presented := []byte(secret)
	if n := testing.AllocsPerRun(100, func() { table.Verify(presented, noon) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
