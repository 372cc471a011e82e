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

// A client receives the whole response to a request that is refused halfway. net/http waits half a
// second before it closes, so on a slow machine one success of many attempts is enough.
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
