package ingest

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"example.org/carstate/internal/access"
)

// BenchmarkHTTPOneClient measures one sender that posts samples one after another on one
// connection, to a store that takes no time.
func BenchmarkHTTPOneClient(b *testing.B) {
	f := newFixture(b)
	f.Store = slowStore(0)
	_, key := f.add(b, "gateway", access.AllVehicles())
	_, url := startHTTP(b, f)
	conn := dialHTTP(b, url, "")
	if err := conn.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	in := bufio.NewReader(conn)
	text := posting(key, sampleLine("V1", 1, 50))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(conn, text); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusAccepted {
			b.Fatal(resp, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
	}
}
