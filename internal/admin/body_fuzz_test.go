package admin_test

import (
	"encoding/json/v2"
	"strings"
	"testing"

	"example.org/carstate/internal/admin/wire"
)

// A refusal must not contain the whole of a body of more than 40 bytes.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"developer":"Ada","vehicles":["A","B"],"operations":["throttle_system"],"rate":"5/s","expires_at":null}`,
		`{"developer":"Ada","vehicles":"all","expires_at":"2030-01-31T12:00:00Z","sandbox":true}`,
		`{"name":"gateway","vehicles":"all"}`, `{"add":["A"],"remove":[]}`, `{"overlap_seconds":3600}`,
		`{"receipts":[{"format":"carstate-forget-receipt/1","vehicle":"00"}]}`,
		`{"vehicles":{}}`, `{"vehicles":["a-b"]}`, `{"developer":"a","developer":"b"}`, `[]`, `{`, ``,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := start(t)
		token := "/v1/tokens/" + s.issue(t).ID
		for _, path := range []string{token + "/grant", token + "/rotate", "/v1/tokens", "/v1/sources", "/v1/tombstones"} {
			a := s.do(t, "POST", path, string(body))
			var refused wire.Failure
			switch err := json.Unmarshal([]byte(a.body), &refused); {
			case err != nil:
				t.Errorf("%s: got %d %q, %v; want JSON", path, a.status, a.body, err)
			case a.status < 300:
			case a.status < 400 || a.status >= 500 || refused.Error == "":
				t.Errorf("%s: got %d %s, want a refusal", path, a.status, a.body)
			case strings.ContainsAny(refused.Error, "\r\n") || len(body) > 40 && strings.Contains(refused.Error, string(body)):
				t.Errorf("%s: got the error %q, want one line without the body", path, refused.Error)
			}
		}
	})
}
