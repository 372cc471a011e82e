package query

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

func (f *fixture) answerer() *answerer {
	return &answerer{Config: f.Config, docs: newDocuments(f.MaxAge)}
}

func headOf(target string) []byte {
	return []byte("GET " + target + " HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n")
}

func get(target string) *http1.Request {
	r := new(http1.Request)
	if f := r.Parse(headOf(target)); f != http1.None {
		panic(f)
	}
	return r
}

func (a *answerer) about(path, vid, secret string, now time.Time) *response {
	w := new(response)
	a.answer(get(path+"?vid="+vid+"&access_token="+secret), now, w)
	return w
}

func (w *response) text() string {
	var b strings.Builder
	for line := range strings.SplitAfterSeq(string(w.Headers), "\r\n") {
		if !strings.HasPrefix(line, "X-Request-Id: ") {
			b.WriteString(line)
		}
	}
	b.Write(w.Body)
	return b.String()
}

func (w *response) header(name string) string {
	for line := range strings.SplitSeq(string(w.Headers), "\r\n") {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return value
		}
	}
	return ""
}

func TestAnswersWithoutAllocating(t *testing.T) {
	f := newFixture(t)
	a := f.answerer()
	for name, target := range map[string]string{
		"answered":       drivingPath + "?access_token=" + f.secrets["TOKEN"] + "&vid=CarJam",
		"throttle":       throttlePath + "?access_token=" + f.secrets["TOKEN"] + "&vid=CarFaulty",
		"encoded":        drivingPath + "?access%5Ftoken=" + f.secrets["TOKEN"] + "&vid=%43arJam",
		"unknown":        drivingPath + "?access_token=" + f.secrets["TOKEN"] + "&vid=Nobody",
		"not granted":    drivingPath + "?access_token=" + f.secrets["ONLY_NORMAL"] + "&vid=CarJam",
		"limited":        drivingPath + "?access_token=" + f.secrets["HUNDRED_A_SECOND"] + "&vid=CarJam",
		"over the rate":  drivingPath + "?access_token=" + f.secrets["TWO_A_MINUTE"] + "&vid=CarJam",
		"bad token":      drivingPath + "?access_token=" + f.secrets["UNKNOWN"] + "&vid=CarJam",
		"sandbox":        drivingPath + "?access_token=" + f.secrets["SANDBOX"] + "&vid=SandboxCycle",
		"no sandbox car": throttlePath + "?access_token=" + f.secrets["SANDBOX"] + "&vid=CarJam",
		"pretended rate": drivingPath + "?access_token=" + f.secrets["SANDBOX"] + "&vid=SandboxRateLimited",
		"no scope":       drivingPath + "?access_token=" + f.secrets["THROTTLE"] + "&vid=CarJam",
		"replaced":       drivingPath + "?access_token=" + f.secrets["REPLACED"] + "&vid=CarJam",
		"outgoing":       drivingPath + "?access_token=" + f.secrets["OUTGOING"] + "&vid=CarJam",
		"no vid":         drivingPath + "?access_token=" + f.secrets["TEN_AN_HOUR"],
		"two vids":       drivingPath + "?vid=A&vid=%42&access%5Ftoken=" + f.secrets["TEN_AN_HOUR"],
		"bad escape":     drivingPath + "?vid=%&access_token=" + f.secrets["TEN_AN_HOUR"],
		"bad query":      drivingPath + "?access_token=%",
		"no path":        "/nothing",
		"a document":     "/",
	} {
		var w response
		r := get(target)
		if n := testing.AllocsPerRun(200, func() { a.answer(r, noon, &w) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Neither the answer nor its count shows whether a vehicle exists that is not granted.
func TestNotGrantedIsUnknown(t *testing.T) {
	f := newFixture(t)
	f.issue(t, "NONE", access.Credential{Vehicles: access.VehicleSet("Other")})
	a := f.answerer()
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
		there := a.about(path, "Probe", f.secrets["NONE"], noon)
		f.Fleet.Delete("Probe")
		gone := a.about(path, "Probe", f.secrets["NONE"], noon)
		if there.text() != gone.text() {
			t.Fatalf("there:\n%s\ngone:\n%s", there.text(), gone.text())
		}
		if there.outcome != gone.outcome {
			t.Fatalf("counted as %s and %s", there.outcome, gone.outcome)
		}
	})
}

func TestLastModifiedIsNeverAfterDate(t *testing.T) {
	f := newFixture(t)
	f.MaxAge = 0
	a := f.answerer()
	rapid.Check(t, func(t *rapid.T) {
		now := noon.Add(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "now")))
		made := signal.At(now.Add(time.Duration(rapid.Int64Range(-40e3, 40e3).Draw(t, "ahead ms")) * time.Millisecond))
		f.Fleet.Put("Probe", fleet.Answer{Driving: vehicle.DrivingVerdict{State: driving.Normal, Time: made}})
		w := a.about(drivingPath, "Probe", f.secrets["TOKEN"], now)
		date, err1 := http.ParseTime(w.header("Date"))
		modified, err2 := http.ParseTime(w.header("Last-Modified"))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if modified.After(date) || !modified.Equal(made.Time().Truncate(time.Second)) && !modified.Equal(date) {
			t.Fatalf("verdict of %s, Last-Modified %s, Date %s", made.Time(), modified, date)
		}
	})
}

// Two IDs do not show how many requests came between them. Random ones agree in one digit of
// sixteen; twice as many are accepted.
func TestRequestIDs(t *testing.T) {
	f := newFixture(t)
	a := f.answerer()
	const pairs, digits = 1000, 32
	seen, same, last := map[string]bool{}, 0, strings.Repeat("x", digits)
	for range pairs {
		var w response
		a.answer(get("/"), noon, &w)
		id := w.header("X-Request-Id")
		if len(id) != digits {
			t.Fatalf("%s has %d digits", id, len(id))
		}
		for i := range id {
			if id[i] == last[i] {
				same++
			}
		}
		last, seen[id] = id, true
	}
	if len(seen) != pairs || same > 2*pairs*digits/16 {
		t.Errorf("%d different IDs of %d, with %d of %d digits in common", len(seen), pairs, same, pairs*digits)
	}
}

func TestNothingIsEchoed(t *testing.T) {
	f := newFixture(t)
	a := f.answerer()
	const mark = "Xyzzy"
	for _, target := range []string{
		"/" + mark,
		drivingPath + "?" + mark + "=%",
		drivingPath + "?vid=" + mark + "-",
		drivingPath + "?vid=CarJam&access_token=" + mark,
		drivingPath + "?vid=CarJam&access_token=cst_" + mark,
		drivingPath + "?vid=CarJam&x=" + mark + "&access_token=" + f.secrets["TOKEN"],
	} {
		var w response
		r := get(target)
		r.Headers = []byte("Host: " + mark + "\r\nX-Request-Id: " + mark + "\r\n\r\n")
		a.answer(r, noon, &w)
		if bytes.Contains([]byte(w.text()), []byte(mark)) || strings.Contains(w.header("X-Request-Id"), mark) {
			t.Errorf("%s: the answer repeats a part of the request: %s", target, w.text())
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

// BenchmarkAnswer is without a connection, from the head to the answer.
func BenchmarkAnswer(b *testing.B) {
	f := newFixture(b)
	for i := range 100_000 {
		f.Fleet.Put(vehicle.ID(fmt.Sprintf("Car%d", i)), fleet.Answer{
			Driving: vehicle.DrivingVerdict{State: driving.Normal, Time: signal.At(noon)},
		})
	}
	a := f.answerer()
	for name, target := range map[string]string{
		"answered":    drivingPath + "?access_token=" + f.secrets["TOKEN"] + "&vid=CarJam",
		"unknown":     drivingPath + "?access_token=" + f.secrets["ONLY_NORMAL"] + "&vid=Nobody",
		"not-granted": drivingPath + "?access_token=" + f.secrets["ONLY_NORMAL"] + "&vid=CarJam",
		"bad-token":   drivingPath + "?access_token=" + f.secrets["UNKNOWN"] + "&vid=CarJam",
	} {
		b.Run(name, func(b *testing.B) {
			var w response
			head, r := headOf(target), new(http1.Request)
			b.ReportAllocs()
			for b.Loop() {
				r.Parse(head)
				a.answer(r, noon, &w)
			}
		})
	}
}

func BenchmarkLoopback(b *testing.B) {
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprintf("pipelined-%d", depth), func(b *testing.B) {
			f := newFixture(b)
			f.Now = time.Now
			f.MaxAge = 0
			r := start(b, f.Config)
			line := "GET " + drivingPath + "?access_token=" + f.secrets["TOKEN"] + "&vid=CarJam HTTP/1.1\r\n"
			const headers = "Host: localhost:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n"
			request := bytes.Repeat([]byte(line+headers), depth)
			c := r.dial(b)
			c.SetDeadline(time.Time{})
			c.in = bufio.NewReaderSize(c.Conn, 64<<10)
			size := len(c.ask(line + headers).raw)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += depth {
				c.Write(request)
				for range depth {
					if _, err := c.in.Discard(size); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
