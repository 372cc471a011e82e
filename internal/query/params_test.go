package query

import (
	"bytes"
	"net/url"
	"testing"
)

// FuzzQueryString checks parseQuery against net/url. If both accept a query, vid and access_token
// must be equal. If only net/url accepts it, a parameter must occur twice. An encoding that
// parseQuery refuses must be invalid for net/url, too.
func FuzzQueryString(f *testing.F) {
	for _, s := range []string{
		"", "&", "=", "vid", "vid=", "vid=A1", "access_token=cst_x&vid=A1", "vid=A1&access_token=cst_x",
		"vid=A&vid=B", "v%69d=A&vid=B", "%76%69%64=%41", "VID=A", "vid=a+b", "vid=%", "vid=%4", "vid=%zz",
		"x=%&vid=A", "vid=%00", "vid=%C0%80", "vid=\xff", "vid=a;b", "a;vid=b", "vid=a=b", "access%5ftoken=%63",
		"access_token", "access_token=a&access_token=a", "+vid=a", "vid+=a", "vid%00=a", "&&vid=A&&", "vid=%2B+%2b",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var scratch []byte
		before := bytes.Clone(raw)
		p, fault := parseQuery(raw, &scratch)
		if !bytes.Equal(raw, before) {
			t.Fatalf("%q was changed", before)
		}
		if cap(scratch) > 2*len(raw)+64 {
			t.Fatalf("%d bytes for a query of %d", cap(scratch), len(raw))
		}
		want, err := url.ParseQuery(string(raw))
		switch {
		case fault == failEncoding:
			if err == nil {
				t.Fatalf("%q: net/url finds no fault in the encoding", raw)
			}
		case err != nil:
		case fault == failTwoVids:
			if len(want["vid"]) < 2 {
				t.Fatalf("%q: vid is there %d times", raw, len(want["vid"]))
			}
		case fault == failTwoTokens:
			if len(want["access_token"]) < 2 {
				t.Fatalf("%q: access_token is there %d times", raw, len(want["access_token"]))
			}
		case fault != nil:
			t.Fatalf("%q: refused with %s", raw, fault.body)
		default:
			agree(t, raw, "vid", p.hasVid, p.vid, want)
			agree(t, raw, "access_token", p.hasToken, p.token, want)
		}
	})
}

func agree(t *testing.T, raw []byte, name string, has bool, value []byte, want url.Values) {
	t.Helper()
	if has != want.Has(name) || len(want[name]) > 1 || want.Get(name) != string(value) {
		t.Fatalf("%q: %s is %t %q, net/url says %q", raw, name, has, value, want[name])
	}
}
