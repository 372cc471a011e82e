//go:build !race

package query

import (
	"io"
	"testing"
)

func TestQueryAllocatesNothing(t *testing.T) {
	f := newFixture(t)
	f.AccessLog = openLogFor(t, AccessLogConfig{Out: io.Discard})
	c := start(t, f.Config).dial(t)
	t.Cleanup(func() { f.AccessLog.Close() })
	query := []byte(f.queryAs("HUNDRED_A_SECOND"))
	answer := make([]byte, len(c.ask(string(query)).raw))
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Write(query); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(answer); err != nil || n == 0 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a query, want none", n)
	}
}
