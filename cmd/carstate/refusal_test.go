package main_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/testkit"
)

// TestARefusalEndsInPeace checks that a client receives the whole response if its request is
// refused before the service has read all of it. The client must not get a connection reset.
// net/http waits half a second before it closes the connection, so on a slow machine it is enough
// that one of many attempts succeeds.
func TestARefusalEndsInPeace(t *testing.T) {
	p := start(t, t.TempDir())
	const tries = 20
	for i := range tries {
		c, err := net.Dial("tcp", p.Address(nodeprocess.Ingest))
		testkit.NoError(t, err)
		defer c.Close()
		testkit.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		request := "POST /v1/telemetry HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 20_000)
		if _, err := io.WriteString(c, request); err != nil {
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
