package query

import (
	"bytes"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Unlike this package, net/url accepts a parameter twice.
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
			t.Fatalf("the query: got it changed to %q, want %q", raw, before)
		}
		if cap(scratch) > 2*len(raw)+64 {
			t.Fatalf("%q: got %d bytes of scratch, want at most %d", raw, cap(scratch), 2*len(raw)+64)
		}
		want, err := url.ParseQuery(string(raw))
		switch {
		case fault == failEncoding:
			if err == nil {
				t.Fatalf("%q: got a fault of the encoding, want none as net/url", raw)
			}
		case err != nil:
		case fault == failures["vid_twice"]:
			if len(want["vid"]) < 2 {
				t.Fatalf("%q: got a refusal for %d vid, want it for 2 or more", raw, len(want["vid"]))
			}
		case fault == failures["token_twice"]:
			if len(want["access_token"]) < 2 {
				t.Fatalf("%q: got a refusal for %d access_token, want it for 2 or more", raw, len(want["access_token"]))
			}
		case fault != nil:
			t.Fatalf("%q: got a refusal with %s, want none", raw, fault.body)
		default:
			agree(t, raw, "vid", p.hasVid, p.vid, want)
			agree(t, raw, "access_token", p.hasToken, p.token, want)
		}
	})
}

func agree(t *testing.T, raw []byte, name string, has bool, value []byte, want url.Values) {
	t.Helper()
	if has != want.Has(name) || len(want[name]) > 1 || want.Get(name) != string(value) {
		t.Fatalf("%q: %s: got %t %q, want %q as net/url", raw, name, has, value, want[name])
	}
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestClientOf_ForwardedFor(t *testing.T) {
	proxies := prefixes("10.0.0.0/8", "fd00::/8", "192.0.2.7/32")
	for name, c := range map[string]struct {
		peer    string
		headers string
		want    string
	}{
		"no proxy, no header":        {"203.0.113.9", "Host: a", "203.0.113.9"},
		"no proxy, a made-up header": {"203.0.113.9", "X-Forwarded-For: 198.51.100.1", "203.0.113.9"},
		"a proxy without the header": {"10.1.1.1", "Host: a", "10.1.1.1"},
		"a proxy":                    {"10.1.1.1", "X-Forwarded-For: 198.51.100.1", "198.51.100.1"},
		"made up before the proxy's own": {"10.1.1.1", "X-Forwarded-For: 1.1.1.1, 10.9.9.9, 198.51.100.1",
			"198.51.100.1"},
		"two proxies": {"10.1.1.1", "X-Forwarded-For: 1.1.1.1, 198.51.100.1 , 192.0.2.7",
			"198.51.100.1"},
		"two headers are one list": {"10.1.1.1",
			"X-Forwarded-For: 198.51.100.1\r\nHost: a\r\nx-forwarded-for:192.0.2.7", "198.51.100.1"},
		"all are proxies":  {"10.1.1.1", "X-Forwarded-For: 10.1.1.3, 10.1.1.2", "10.1.1.3"},
		"empty members":    {"10.1.1.1", "X-Forwarded-For: , 198.51.100.1,, ,", "198.51.100.1"},
		"nonsense ends it": {"10.1.1.1", "X-Forwarded-For: 198.51.100.1, unknown, 10.1.1.2", "10.1.1.2"},
		"a port":           {"10.1.1.1", "X-Forwarded-For: 198.51.100.1:4711", "198.51.100.1"},
		"IPv6":             {"fd00::1", "X-Forwarded-For: 2001:db8::5", "2001:db8::5"},
		"IPv6 in brackets": {"fd00::1", "X-Forwarded-For: [2001:db8::5]", "2001:db8::5"},
		"IPv6 with a port": {"fd00::1", "X-Forwarded-For: [2001:db8::5]:4711", "2001:db8::5"},
		"IPv4 in IPv6": {"10.1.1.1", "X-Forwarded-For: 198.51.100.1, ::ffff:10.2.2.2",
			"198.51.100.1"},
		"a zone": {"10.1.1.1", "X-Forwarded-For: fe80::1%eth0", "fe80::1"},
		"another header": {"10.1.1.1", "X-Forwarded: 198.51.100.1\r\nForwarded: for=198.51.100.1",
			"10.1.1.1"},
	} {
		if got := clientOf(netip.MustParseAddr(c.peer), []byte(c.headers+"\r\n\r\n"), proxies); got.String() != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	got := clientOf(netip.MustParseAddr("10.1.1.1"), []byte("X-Forwarded-For: 1.1.1.1\r\n\r\n"), nil)
	if got.String() != "10.1.1.1" {
		t.Errorf("without a trusted proxy: got %s, want 10.1.1.1", got)
	}
}

// The member that the proxy appends counts, whatever the client sends.
func TestClientOf_IgnoresMadeUpMembers(t *testing.T) {
	proxies := prefixes("10.0.0.0/8")
	rapid.Check(t, func(t *rapid.T) {
		made := rapid.StringMatching(`[ -~]{0,60}`).Draw(t, "made up")
		sep := rapid.SampledFrom([]string{", ", ",", "\r\nX-Forwarded-For: "}).Draw(t, "separator")
		head := "X-Forwarded-For: " + made + sep + "198.51.100.1\r\n\r\n"
		if got := clientOf(netip.MustParseAddr("10.1.1.1"), []byte(head), proxies); got.String() != "198.51.100.1" {
			t.Fatalf("%q: got %s, want 198.51.100.1", head, got)
		}
	})
}

func FuzzClientOf(f *testing.F) {
	f.Add("X-Forwarded-For: 1.1.1.1, 10.9.9.9\r\n\r\n")
	f.Add("x-forwarded-for:[::1]:80,,\r\nX-Forwarded-For: 10.0.0.1%a\n")
	f.Fuzz(func(t *testing.T, head string) {
		got := clientOf(netip.MustParseAddr("10.1.1.1"), []byte(head), prefixes("10.0.0.0/8"))
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Errorf("%q: got %s, want a valid address", head, got)
		}
		if got.String() != "10.1.1.1" && !strings.Contains(strings.ToLower(head), "x-forwarded-for") {
			t.Errorf("%q without the header: got %s, want 10.1.1.1", head, got)
		}
	})
}
