package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestAuditPages_SkipsEmptyPages checks that a page without events does not end the audit if there
// are older events. A search by a rare filter has such pages.
func TestAuditPages_SkipsEmptyPages(t *testing.T) {
	pages := map[string]string{
		"":  `{"events":[],"older":9}`,
		"9": `{"events":[{}],"older":4}`,
		"4": `{"events":[{}],"older":0}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, pages[r.URL.Query().Get("before")])
	}))
	defer server.Close()
	for limit, want := range map[int]int{0: 2, 1: 1, 2: 2, 3: 2} {
		events := 0
		for page, err := range (&Client{URL: server.URL, Key: "key"}).AuditPages(t.Context(), url.Values{}, limit) {
			if err != nil {
				t.Fatal(err)
			}
			events += len(page.Events)
		}
		if events != want {
			t.Errorf("limit %d: got %d events, want %d", limit, events, want)
		}
	}
}
