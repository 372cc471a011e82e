package query

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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

// TestClientOf_IgnoresMadeUpMembers checks that the address which the proxy appends to
// X-Forwarded-For is used, whatever the client has put into the header.
func TestClientOf_IgnoresMadeUpMembers(t *testing.T) {
	proxies := prefixes("10.0.0.0/8")
	rapid.Check(t, func(t *rapid.T) {
		made := rapid.StringMatching(`[ -~]{0,60}`).Draw(t, "made up")
		sep := rapid.SampledFrom([]string{", ", ",", "\r\nX-Forwarded-For: "}).Draw(t, "separator")
		head := "X-Forwarded-For: " + made + sep + "198.51.100.1\r\n\r\n"
		if got := clientOf(netip.MustParseAddr("10.1.1.1"), []byte(head), proxies); got.String() != "198.51.100.1" {
			t.Fatalf("%q: %s", head, got)
		}
	})
}

func FuzzClientOf(f *testing.F) {
	f.Add("X-Forwarded-For: 1.1.1.1, 10.9.9.9\r\n\r\n")
	f.Add("x-forwarded-for:[::1]:80,,\r\nX-Forwarded-For: 10.0.0.1%a\n")
	f.Fuzz(func(t *testing.T, head string) {
		got := clientOf(netip.MustParseAddr("10.1.1.1"), []byte(head), prefixes("10.0.0.0/8"))
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Errorf("%q: %s", head, got)
		}
		if got.String() != "10.1.1.1" && !strings.Contains(strings.ToLower(head), "x-forwarded-for") {
			t.Errorf("%q without the header: %s", head, got)
		}
	})
}
