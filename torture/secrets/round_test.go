package secrets

import "testing"

func TestSucceeded_ByFirstWords(t *testing.T) {
	r := new(round)
	for _, what := range []string{"token list --json", "CARSTATE_TOKEN={token} query throttle-system {vid} --json",
		"replay drive.csv --vid {vid}", "POST /tokens"} {
		r.succeeded(what)
	}
	for what, is := range map[string]bool{"token list": false, "query throttle-system": false, "replay": false,
		"POST /tokens": false, "backup": true, "POST /sources": true} {
		if r.did(what) == is {
			t.Errorf("%s is missing: %t", what, !is)
		}
	}
}
