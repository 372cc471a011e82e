package overload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carstate/torture/row"
)

// What a car sends rises by a second each time, lies in the past, and is at an end
// after a while; and there are as many cars at any time as there should be.
func TestFleet(t *testing.T) {
	f := newFleet(&row.Attempt{Logf: t.Logf})
	last := make(map[string]int64)
	const rounds = 3 * drives
	for n := range rounds * cars {
		vid, at := f.sample(n)
		if before, ok := last[vid]; ok && at != before+1 || !ok && n >= cars && at != f.begin {
			t.Fatalf("sample %d of %s is of %d, the one before of %d", n, vid, at, before)
		}
		if at < f.begin || at > time.Now().Unix() {
			t.Fatalf("sample %d is of %d", n, at)
		}
		last[vid] = at
	}
	if want := cars + rounds*cars/drives; len(last) < want-1 || len(last) > want {
		t.Errorf("%d cars, want %d", len(last), want)
	}
	for i, l := range bytes.Split(bytes.TrimSpace(f.body(4711)), []byte("\n")) {
		var sent struct {
			VID  string
			Time int64
		}
		if err := json.Unmarshal(l, &sent); err != nil {
			t.Fatal(err)
		}
		if vid, at := f.sample(4711*batch + i); i >= batch || sent.VID != vid || sent.Time != at*1000 {
			t.Errorf("sample %d is %s, want %s of %d", i, l, vid, at)
		}
	}
}

// Of what is answered well the fleet hears, and of nothing else.
func TestAcknowledged(t *testing.T) {
	var stored, refused atomic.Int64
	cars := make(chan string, 1<<20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"vid":"Car0x`)) {
			refused.Add(1)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		stored.Add(1)
		for l := range strings.Lines(string(body)) {
			cars <- strings.Split(l, `"`)[3]
		}
		_, _ = io.WriteString(w, "yes")
	}))
	defer s.Close()
	f := newFleet(&row.Attempt{Logf: t.Logf})
	c := &crowd{
		addr: strings.TrimPrefix(s.URL, "http://"),
		request: func(b []byte, i int) []byte {
			body := f.body(i)
			return append(fmt.Appendf(b, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body)), body...)
		},
		good:         func(status int, body []byte) bool { return status == http.StatusOK && string(body) == "yes" },
		acknowledged: f.acknowledged,
	}
	r := c.closedLoop(t.Context(), 3, 10*time.Millisecond, 100*time.Millisecond)
	// A busy machine may take longer to answer than a user waits.
	if r.good == 0 || r.refused == 0 || f.taken.Load() < int64(r.good) || f.taken.Load() > stored.Load() {
		t.Errorf("%+v: %d were acknowledged of %d, and %d refused", r, f.taken.Load(), stored.Load(), refused.Load())
	}
	close(cars)
	want := make(map[string]bool)
	for vid := range cars {
		want[vid] = true
	}
	for _, vid := range f.load.Vehicles() {
		if !want[vid] {
			t.Errorf("%s was not acknowledged", vid)
		}
	}
}
