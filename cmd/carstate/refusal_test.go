package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"carstate/internal/nodeprocess"
)

// TestARefusalEndsInPeace: who is refused before all that he sends was read is told
// where the answer ends, and not that the connection was reset. net/http waits for
// half a second in between, so one try of many must be soon enough.
func TestARefusalEndsInPeace(t *testing.T) {
	p := start(t, t.TempDir())
	const tries = 20
	for i := range tries {
		c, err := net.Dial("tcp", p.Address(nodeprocess.Ingest))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 20_000)); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c)
		if !bytes.HasPrefix(text, []byte("HTTP/1.1 401 ")) {
			t.Fatalf("it was answered %q", text)
		}
		if err == nil {
			return
		}
		t.Logf("try %d: %v", i, err)
	}
	t.Error("no answer ended in peace")
}
