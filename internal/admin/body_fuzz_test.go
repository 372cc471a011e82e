package admin

import (
	"encoding/json/v2"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
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
		readAs[wire.TokenRequest](t, body)
		readAs[wire.SourceRequest](t, body)
		readAs[wire.GrantRequest](t, body)
		readAs[wire.RotateRequest](t, body)
		if in := readAs[wire.BuryRequest](t, body); in != nil {
			for _, r := range in.Receipts {
				_ = ops.CheckReceipt(r)
			}
		}
	})
}

func readAs[In any](t *testing.T, body []byte) *In {
	r := httptest.NewRequest("POST", "/v1", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	in, err := readBody[In](httptest.NewRecorder(), r)
	if err != nil {
		if _, ok := errors.AsType[*ops.Refusal](err); !ok {
			t.Errorf("%T: %v is no refusal", in, err)
		}
		if text := err.Error(); strings.ContainsAny(text, "\r\n") ||
			len(body) > 40 && strings.Contains(text, string(body)) {
			t.Errorf("%T: the error is %q", in, text)
		}
		return nil
	}
	if len(body) > 0 {
		if _, err := json.Marshal(in); err != nil {
			t.Errorf("%T cannot be written again: %v", in, err)
		}
	}
	return &in
}
