package query

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"

	"pgregory.net/rapid"
)

func TestRefusalsLimit(t *testing.T) {
	r := newRefusals()
	addr := netip.MustParseAddr("192.0.2.1")
	for i := range refusedTokens {
		if wait := r.noteRefusal(addr, noon.Add(time.Duration(i)*100*time.Millisecond)); wait != 0 {
			t.Fatalf("refusal %d has to wait %v", i+1, wait)
		}
	}
	// The hundred refusals came within ten seconds. The first of them is the first to leave the
	// window.
	for _, c := range []struct{ at, wait time.Duration }{
		{10 * time.Second, 50 * time.Second},
		{59 * time.Second, time.Second},
		{time.Minute - 1, 1},
		{time.Minute, 0},
		{time.Minute, 100 * time.Millisecond}, // the second of the hundred
		{time.Minute + 100*time.Millisecond, 0},
		{10 * time.Minute, 0},
	} {
		if wait := r.noteRefusal(addr, noon.Add(c.at)); wait != c.wait {
			t.Errorf("at %v the wait is %v, not %v", c.at, wait, c.wait)
		}
	}
}

func TestRefusalsByNetwork(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"::1", "::2", true},
		{"0.0.0.1", "::1", false},
	} {
		r := newRefusals()
		a, b := netip.MustParseAddr(c.a), netip.MustParseAddr(c.b)
		for range refusedTokens {
			r.noteRefusal(a, noon)
		}
		if got := r.noteRefusal(b, noon) > 0; got != c.same {
			t.Errorf("%s and %s are counted together: %t", a, b, got)
		}
	}
	if newRefusals().noteRefusal(netip.Addr{}, noon) != 0 {
		t.Error("a peer without an address is not counted")
	}
}

// TestRefusalsAreBounded checks that the memory for refusals is bounded, and that an address with
// recent refusals is not evicted while there are addresses with older ones.
func TestRefusalsAreBounded(t *testing.T) {
	r := newRefusals()
	busy := netip.MustParseAddr("192.0.2.1")
	for i := range refusedTokens {
		r.noteRefusal(busy, noon.Add(time.Duration(i)))
	}
	for i := range 20_000 {
		r.noteRefusal(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), noon.Add(-time.Second))
	}
	if n := len(r.logs); n != maxRefusalLogs {
		t.Errorf("%d addresses are remembered, want %d", n, maxRefusalLogs)
	}
	if r.noteRefusal(busy, noon.Add(time.Second)) == 0 {
		t.Error("the busy one was forgotten for others that are older")
	}
}

func TestRefusalsWithAClockThatGoesBack(t *testing.T) {
	r := newRefusals()
	addr := netip.MustParseAddr("192.0.2.1")
	for range refusedTokens {
		r.noteRefusal(addr, noon)
	}
	if wait := r.noteRefusal(addr, noon.Add(-time.Hour)); wait != 0 {
		t.Errorf("an hour back the wait is %v", wait)
	}
}

// TestRefusalsProperty checks that no minute has more refusals than refusedTokens, and that a
// client that waits as long as it was asked to is not asked to wait again.
func TestRefusalsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRefusals()
		addr := netip.MustParseAddr("2001:db8::1")
		var passed []time.Time
		now := noon
		for range rapid.IntRange(100, 400).Draw(t, "tokens") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 1200).Draw(t, "pause ms")) * time.Millisecond)
			wait := r.noteRefusal(addr, now)
			if wait > 0 {
				if rapid.Bool().Draw(t, "obey") {
					now = now.Add(wait)
					if again := r.noteRefusal(addr, now); again != 0 {
						t.Fatalf("after %v came %v more", wait, again)
					}
					passed = append(passed, now)
				}
				continue
			}
			passed = append(passed, now)
			if n := len(passed); n > refusedTokens && now.Sub(passed[n-1-refusedTokens]) < refusedWindow {
				t.Fatalf("%d within %v", refusedTokens+1, now.Sub(passed[n-1-refusedTokens]))
			}
		}
	})
}

// TestRefusalsBehindAProxy checks that refusals behind a trusted proxy are counted per client, and
// that a client with too many refusals is still answered if it sends a valid token.
func TestRefusalsBehindAProxy(t *testing.T) {
	f := newFixture(t)
	f.TrustedProxies = prefixes("127.0.0.0/8")
	r := start(t, f.Config)
	c := r.dial(t)
	ask := func(from, token string) answerRead {
		return c.ask(strings.Replace(f.queryAs(token), "Host: x", "Host: x\r\nX-Forwarded-For: "+from, 1))
	}
	for range refusedTokens {
		ask("203.0.113.1", "UNKNOWN").wants(t, "401 Unauthorized")
	}
	for _, want := range []struct{ from, token, status string }{
		{"203.0.113.1", "UNKNOWN", "429 Too Many Requests"},
		{"203.0.113.2, 203.0.113.1", "UNKNOWN", "429 Too Many Requests"},
		{"203.0.113.2", "UNKNOWN", "401 Unauthorized"},
		{"203.0.113.1", "TOKEN", "200 OK"},
	} {
		ask(want.from, want.token).wants(t, want.status)
	}
}

// TestRefusalsCostNoBudget checks that neither the refused calls of one token nor refused tokens
// use up the budget of another token.
func TestRefusalsCostNoBudget(t *testing.T) {
	f := newFixture(t)
	f.issue(t, "OTHER", access.Request{Vehicles: access.AllVehicles(),
		Rate: access.Rate{Calls: 2, Window: time.Minute}})
	c := start(t, f.Config).dial(t)
	for range 10 {
		c.ask(f.queryAs("TWO_A_MINUTE"))
		c.ask(f.queryAs("UNKNOWN"))
	}
	for range 2 {
		c.ask(f.queryAs("OTHER")).wants(t, "200 OK")
	}
}

// TestRefusalsCoverEveryTry checks that an invalid token is recorded as a refusal even if the query
// or the vid is wrong, too, because the answer to such a request shows the rate limit of a valid
// token. An address with too many refusals must no longer see that limit, and a token over its rate
// must get the answer of an invalid one.
func TestRefusalsCoverEveryTry(t *testing.T) {
	f := newFixture(t)
	c := start(t, f.Config).dial(t)
	ask := func(line, token string) string {
		t.Helper()
		a := c.ask(strings.Replace(line, "TOKEN", f.secrets[token], 1) + " HTTP/1.1\r\nHost: x\r\n\r\n")
		told := slices.DeleteFunc(slices.Clone(a.header), func(h string) bool {
			return strings.HasPrefix(h, "Date: ") || strings.HasPrefix(h, "X-Request-Id: ")
		})
		return a.status + " " + strings.Join(told, " ") + " " + a.body
	}
	const limit = `RateLimit-Policy: "token";q=2;w=60`
	tries := []string{
		"GET " + drivingPath + "?access_token=TOKEN",
		"GET " + throttlePath + "?access_token=TOKEN&vid=a-b",
		"GET " + drivingPath + "?vid=A&access_token=TOKEN&vid=B",
		"HEAD " + drivingPath + "?access_token=TOKEN&vid=%2",
	}
	others := []string{
		"GET " + drivingPath + "x?vid=A&access_token=TOKEN",
		"GET /?access_token=TOKEN",
		"PUT " + drivingPath + "?vid=A&access_token=TOKEN",
		"GET " + drivingPath + "?vid=A&access_token=TOKEN&access_token=TOKEN",
	}
	for i := range refusedTokens {
		if got := ask(tries[i%len(tries)], "UNKNOWN"); !strings.HasPrefix(got, "HTTP/1.1 400") ||
			strings.Contains(got, "RateLimit") {
			t.Fatalf("wrong token %d: %s", i+1, got)
		}
		if i == 0 {
			if got := ask(tries[0], "TWO_A_MINUTE"); !strings.Contains(got, limit) {
				t.Errorf("before the limit of refusals, a token that counts is not told its own: %s", got)
			}
		}
	}
	for _, line := range append(tries, others...) {
		if wrong, right := ask(line, "UNKNOWN"), ask(line, "TWO_A_MINUTE"); wrong != right {
			t.Errorf("%s tells a right token from a wrong one:\n%s\n%s", line, right, wrong)
		}
	}
	query := "GET " + drivingPath + "?vid=CarJam&access_token=TOKEN"
	for range 2 {
		if got := ask(query, "TWO_A_MINUTE"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("the token that counts: %s", got)
		}
	}
	wrong, right := ask(query, "UNKNOWN"), ask(query, "TWO_A_MINUTE")
	if wrong != right || !strings.HasPrefix(right, "HTTP/1.1 429") ||
		!strings.Contains(right, `RateLimit: "refusals";r=0;t=60`) {
		t.Errorf("over its rate, the token differs from a wrong one:\n%s\n%s", right, wrong)
	}
}

// TestUnreadToken_IsUnavailable checks that an unknown token gets 503, not 401, while this node
// cannot read some tokens because a newer version wrote them.
func TestUnreadToken_IsUnavailable(t *testing.T) {
	f := newFixture(t)
	lost := f.issue(t, "LOST", access.Request{Vehicles: access.AllVehicles()})
	f.Tokens.Lose(lost.Name)
	c := start(t, f.Config).dial(t)
	for token, want := range map[string]string{
		"LOST": "503 Service Unavailable", "UNKNOWN": "503 Service Unavailable", "TOKEN": "200 OK",
		"REVOKED": "401 Unauthorized",
	} {
		c.ask(f.queryAs(token)).wants(t, want)
	}
}
