package query_test

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

func (a answerRead) text() string {
	return strings.Replace(a.raw, a.get("X-Request-Id"), "", 1)
}

func (a answerRead) get(name string) string {
	for _, line := range a.header {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return value
		}
	}
	return ""
}

// Neither the answer nor its count shows whether a vehicle exists that is not granted.
func TestNotGrantedIsUnknown(t *testing.T) {
	f := newFixture(t)
	f.issue(t, "NONE", access.Credential{Vehicles: access.VehicleSet("Other")})
	p, unknown := start(t, f.Config).dial(t), 0.0
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		var known fleet.Answer
		age := time.Duration(rapid.Int64Range(-60e3, 600e3).Draw(t, "age ms")) * time.Millisecond
		made := signal.At(noon.Add(-age))
		if rapid.Bool().Draw(t, "driving") {
			state := driving.State(rapid.IntRange(1, 3).Draw(t, "state"))
			known.Driving = vehicle.DrivingVerdict{State: state, Time: made}
		} else {
			known.Driving = vehicle.DrivingVerdict{NotDriving: true, Time: made}
		}
		system := throttle.System(rapid.IntRange(0, 1).Draw(t, "system"))
		known.Throttle = vehicle.ThrottleVerdict{System: system, Time: made}
		path := rapid.SampledFrom([]string{drivingPath, throttlePath}).Draw(t, "path")
		f.Fleet.Put("Probe", known)
		there := f.about(p, path, "Probe", "NONE")
		f.Fleet.Delete("Probe")
		gone := f.about(p, path, "Probe", "NONE")
		if there.text() != gone.text() {
			t.Fatalf("a vehicle that is there: got\n%s\nwant as of one that is gone\n%s", there.text(), gone.text())
		}
		unknown += 2
		if n := testkit.Metric(outer, f.metrics, query.MetricQueries, "outcome", "unknown"); n != unknown {
			t.Fatalf("%v are counted as unknown, want all %v", n, unknown)
		}
	})
}

func TestLastModifiedIsNeverAfterDate(t *testing.T) {
	f := newFixture(t)
	f.MaxAge = 0
	p := start(t, f.Config).dial(t)
	rapid.Check(t, func(t *rapid.T) {
		now := noon.Add(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "now")))
		f.clock.Advance(now.Sub(f.clock.Now()))
		made := signal.At(now.Add(time.Duration(rapid.Int64Range(-40e3, 40e3).Draw(t, "ahead ms")) * time.Millisecond))
		f.Fleet.Put("Probe", fleet.Answer{Driving: vehicle.DrivingVerdict{State: driving.Normal, Time: made}})
		a := f.about(p, drivingPath, "Probe", "TOKEN")
		date, err1 := http.ParseTime(a.get("Date"))
		modified, err2 := http.ParseTime(a.get("Last-Modified"))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatalf("the times: got %v, want no error", err)
		}
		if modified.After(date) || !modified.Equal(made.Time().Truncate(time.Second)) && !modified.Equal(date) {
			t.Fatalf("a verdict of %s: got Last-Modified %s, Date %s; want them alike", made.Time(), modified, date)
		}
	})
}

// Two IDs do not show how many requests came between them. Random ones agree in one digit of
// sixteen; twice as many are accepted.
func TestRequestIDs(t *testing.T) {
	p := start(t, newFixture(t).Config).dial(t)
	const pairs, digits = 1000, 32
	seen, same, last := map[string]bool{}, 0, strings.Repeat("x", digits)
	for range pairs {
		id := p.ask(get("/x")).get("X-Request-Id")
		if len(id) != digits {
			t.Fatalf("%s: got %d digits, want %d", id, len(id), digits)
		}
		for i := range id {
			if id[i] == last[i] {
				same++
			}
		}
		last, seen[id] = id, true
	}
	if len(seen) != pairs || same > 2*pairs*digits/16 {
		t.Errorf("got %d IDs, %d equal digits; want %d, at most %d", len(seen), same, pairs, 2*pairs*digits/16)
	}
}

func TestNothingIsEchoed(t *testing.T) {
	f := newFixture(t)
	p := start(t, f.Config).dial(t)
	const mark = "Xyzzy"
	for _, target := range []string{
		"/" + mark,
		drivingPath + "?" + mark + "=%",
		drivingPath + "?vid=" + mark + "-",
		drivingPath + "?vid=CarJam&access_token=" + mark,
		drivingPath + "?vid=CarJam&access_token=cst_" + mark,
		drivingPath + "?vid=CarJam&x=" + mark + "&access_token=" + f.secrets["TOKEN"],
	} {
		a := p.ask("GET " + target + " HTTP/1.1\r\nHost: " + mark + "\r\nX-Request-Id: " + mark + "\r\n\r\n")
		if strings.Contains(a.raw, mark) {
			t.Errorf("%s: got a part of the request in the answer, want none: %s", target, a.raw)
		}
	}
}

func TestRefusalsCostNoBudget(t *testing.T) {
	f := newFixture(t)
	f.issue(t, "OTHER", access.Credential{Vehicles: access.AllVehicles(),
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

// A newer version may have issued the token, so the answer is 503.
func TestUnreadToken_IsUnavailable(t *testing.T) {
	f := newFixture(t)
	lost := f.issue(t, "LOST", access.Credential{Vehicles: access.AllVehicles()})
	f.Tokens.Lose(lost.Name)
	c := start(t, f.Config).dial(t)
	for token, want := range map[string]string{
		"LOST": "503 Service Unavailable", "UNKNOWN": "503 Service Unavailable", "TOKEN": "200 OK",
		"REVOKED": "401 Unauthorized",
	} {
		c.ask(f.queryAs(token)).wants(t, want)
	}
}

func BenchmarkLoopback(b *testing.B) {
	const depth = 16 // pipelined
	f := newFixture(b)
	f.Now, f.MaxAge = nil, 0
	c := start(b, f.Config).dial(b)
	c.SetDeadline(time.Time{})
	c.in = bufio.NewReaderSize(c.Conn, 64<<10)
	line := "GET " + drivingPath + "?access_token=" + f.secrets["TOKEN"] + "&vid=CarJam HTTP/1.1\r\n" +
		"Host: localhost:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n"
	request, size := bytes.Repeat([]byte(line), depth), len(c.ask(line).raw)
	b.ResetTimer()
	for n := 0; n < b.N; n += depth {
		c.Write(request)
		for range depth {
			if _, err := c.in.Discard(size); err != nil {
				b.Fatalf("the answer: got %v, want no error", err)
			}
		}
	}
}
