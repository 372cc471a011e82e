package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

var testNow = time.Date(2026, 11, 20, 4, 0, 10, 0, time.UTC)

var testLatest = signal.At(testNow.Add(maxAhead))

func describe(x vehicle.Sample, d *decoder) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", x.Vehicle, x.Time.Time().Format("2006-01-02T15:04:05.000Z"))
	for s := range signal.Signal(signal.Num) {
		if v, ok := x.Value(s); ok {
			fmt.Fprintf(&b, " %s=%g", s, v)
			if s == signal.DTCList {
				fmt.Fprintf(&b, "%v", x.Codes)
			}
		}
	}
	if n := len(d.unknown); n > 0 {
		fmt.Fprintf(&b, " ignored=%d", n)
	}
	for _, u := range d.unused {
		fmt.Fprintf(&b, "; %s: %s %s", u.why.Kind, u.name, u.why.Text)
	}
	return b.String()
}

type sampleCase struct {
	line      int
	in, wants string
}

func sampleCases(t testing.TB) (cases []sampleCase) {
	t.Helper()
	f, err := os.Open("testdata/samples.txt")
	testkit.NoError(t, err)
	defer f.Close()
	scan := bufio.NewScanner(f)
	for n := 1; scan.Scan(); n++ {
		text := scan.Text()
		switch {
		case strings.HasPrefix(text, `<"`):
			in, err := strconv.Unquote(text[1:])
			if err != nil {
				t.Fatalf("samples.txt:%d: got %v, want a text in quotes", n, err)
			}
			cases = append(cases, sampleCase{line: n, in: in})
		case strings.HasPrefix(text, "< "):
			cases = append(cases, sampleCase{line: n, in: text[2:]})
		case strings.HasPrefix(text, "> "):
			cases[len(cases)-1].wants = text[2:]
		case text != "" && !strings.HasPrefix(text, "#"):
			t.Fatalf("samples.txt:%d: got %q, want a line that begins with <, > or #", n, text)
		}
	}
	if scan.Err() != nil || len(cases) == 0 {
		t.Fatalf("samples.txt: got %d cases, error %v; want some", len(cases), scan.Err())
	}
	return cases
}

func TestDecoder_SampleFile(t *testing.T) {
	d := newDecoder() // one for all lines: no state of one may affect another
	for _, c := range sampleCases(t) {
		x, why := d.sample([]byte(c.in), "", testLatest)
		got := describe(x, d)
		if why != nil {
			got = fmt.Sprintf("refused %s: %s", why.Kind, why.Text)
		}
		if got != c.wants {
			t.Errorf("samples.txt:%d:\n in    %s\n got   %s\n wants %s", c.line, c.in, got, c.wants)
		}
	}
}

func TestTroubleCodes(t *testing.T) {
	d := newDecoder() // one for all lines: the codes of a sample are its own
	own, why := d.sample([]byte(`{"vid":"a","time":1795147200000,"signals":{"Vehicle.OBD.DTCList":["P0120","P0121"]}}`), "",
		testLatest)
	if why != nil {
		t.Fatalf("the first sample: got %v, want no error", why)
	}
	for _, n := range []int{0, 1, maxCodes, maxCodes + 1, 8000} {
		line := `{"vid":"a","time":1795147200000,"signals":{"Vehicle.OBD.DTCList":[` +
			strings.TrimSuffix(strings.Repeat(`"P0121",`, n), ",") + `]}}`
		x, why := d.sample([]byte(line), "", testLatest)
		if why != nil || len(x.Codes) != min(n, maxCodes) {
			t.Errorf("%d codes: got %d, error %v; want %d", n, len(x.Codes), why, min(n, maxCodes))
		}
		if n > maxCodes != slices.ContainsFunc(d.unused, func(u unusedValue) bool { return u.why == errManyCodes }) {
			t.Errorf("%d codes: got unused %v, want some: %t", n, d.unused, n > maxCodes)
		}
	}
	if got := fmt.Sprint(own.Codes); got != "[P0120 P0121]" {
		t.Errorf("the first sample's codes: got %s, want [P0120 P0121]", got)
	}
}

// FuzzDecode requires that AppendJSON changes no accepted sample.
func FuzzDecode(f *testing.F) {
	for _, c := range sampleCases(f) {
		f.Add([]byte(c.in))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		d := newDecoder()
		x, why := d.sample(line, "", testLatest)
		if string(line) != before {
			t.Fatalf("the input: got %q, want %q", line, before)
		}
		if why != nil {
			if why.Text == "" || why.Kind >= access.SampleRefusals {
				t.Fatalf("got %+v, want a text and a kind", why)
			}
			return
		}
		if vehicle.CheckID(string(x.Vehicle)) != nil || len(x.Vehicle) > vehicle.MaxReportingID {
			t.Fatalf("the vid: got %q, want a valid one", x.Vehicle)
		}
		if x.Time < testLatest.Add(-maxBehind) || x.Time > testLatest {
			t.Fatalf("the time: got %d, want %d to %d", x.Time, testLatest.Add(-maxBehind), testLatest)
		}
		sent := AppendJSON(nil, &x)
		again, why := d.sample(sent, "", testLatest)
		if why != nil {
			t.Fatalf("%s, sent again as %s: got %v, want no error", line, sent, why)
		}
		if got, want := describe(again, d), describe(x, newDecoder()); got != want {
			t.Fatalf("%s: got %s after a round trip, want %s", line, got, want)
		}
	})
}

// FuzzParse requires that check accepts what is usual, and that another spelling changes nothing.
func FuzzParse(f *testing.F) {
	for _, c := range sampleCases(f) {
		f.Add([]byte(c.in), "")
		f.Add([]byte(c.in), "V1")
	}
	f.Add([]byte(`{"a":1,"signals":{"a":true,"b":-0.5,"Vehicle.OBD.DTCList":["P0120"]},`+
		`"b":"c","vid":"V1","time":1795147200000.9}`), "")
	f.Add([]byte(` { "time" : "2026-11-20t04:00:00.25z" , "signals" : { } , "vid" : "V1" } `), "V1")
	f.Fuzz(func(t *testing.T, line []byte, topic string) {
		id, _ := vehicle.ParseID(topic)
		d := newDecoder()
		wrong := d.check(line)
		if _, _, usual := d.parse(line, id, testLatest); usual && wrong != nil {
			t.Errorf("%s is usual: got %v, want no error", line, wrong)
		}
		read := func(line []byte) string {
			x, why := d.sample(line, id, testLatest)
			return fmt.Sprintf("%s, unknown %q: %v", describe(x, d), d.unknown, why)
		}
		if got, want := read(line), read(otherSpelling(line)); wrong == nil && got != want {
			t.Errorf("%s: got %s, want %s as for %s", line, got, want, otherSpelling(line))
		}
	})
}

// otherSpelling has the least escapes and an exponent in each number.
func otherSpelling(line []byte) []byte {
	var b bytes.Buffer
	in, out := jsontext.NewDecoder(bytes.NewReader(line)), jsontext.NewEncoder(&b, jsontext.WithIndent(" "))
	for token, err := in.ReadToken(); err == nil; token, err = in.ReadToken() {
		if number := token.String(); token.Kind() == jsontext.KindNumber && !strings.ContainsAny(number, "eE") {
			_ = out.WriteValue(jsontext.Value(number + "e0"))
		} else {
			_ = out.WriteToken(token)
		}
	}
	return b.Bytes()
}

func TestParse_ReadsWhatIsUsual(t *testing.T) {
	for _, line := range []string{
		usualLine,
		`{"time":1795147200250,"signals":{"Vehicle.Speed":0,"Vehicle.OBD.Status.IsMILOn":true},"vid":"V1"}`,
		`{"vid":"V1","time":1795147200250,"seq":7,` +
			`"signals":{"Vehicle.Cabin.DogMode":null,"Vehicle.TripMeterReading":12.5},"gateway":"north"}`,
		`{"vid": "V1", "time": 1795147200250, ` +
			`"signals": {"Vehicle.OBD.DTCList": ["P0120", "U0100"], "Vehicle.LowVoltageSystemState": "ON"}}`,
		`{"vid":"V1","time":1795147200250,"signals":{"Vehicle.Speed":50,` +
			`"Vehicle.CurrentLocation.Latitude":44.4979671234567,"Vehicle.CurrentLocation.Longitude":-179.999999999999,` +
			`"Vehicle.CurrentLocation.Heading":360,"Vehicle.CurrentLocation.HorizontalAccuracy":3.5}}`,
		`{"vid":"V1","time":1795147200250,"signals":{}}`,
		"{\"vid\":\"V1\",\r\n\t\"time\":1795147200250,\"signals\":{}}",
	} {
		if _, _, usual := newDecoder().parse([]byte(line), "", testLatest); !usual {
			t.Errorf("%s: got it as unusual, want it as usual", line)
		}
	}
	d, line := newDecoder(), []byte(usualLine)
	if n := testing.AllocsPerRun(100, func() { _, _ = d.sample(line, "", testLatest) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

const usualLine = `{"vid":"NHeN4UqVsohGS55I7LBdh","time":"2026-11-20T04:00:00.250Z",` +
	`"signals":{"Vehicle.Speed":12.4,"Vehicle.OBD.ThrottlePosition":17.6,"Vehicle.OBD.EngineSpeed":1820}}`

func BenchmarkDecode(b *testing.B) {
	for name, line := range map[string]string{
		"usual":   usualLine,
		"checked": strings.Replace(usualLine, "vid", `v\u0069d`, 1),
		"ignored": strings.Replace(usualLine, `"Vehicle.Speed"`,
			`"Vehicle.Chassis.Axle.Row1.Wheel.Left.Speed":12.5,"Vehicle.Speed"`, 1),
	} {
		b.Run(name, func(b *testing.B) {
			line, d := []byte(line), newDecoder()
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, why := d.sample(line, "", testLatest); why != nil {
					b.Fatalf("the sample: got %v, want no error", why)
				}
			}
		})
	}
}

var notRFC3339 = []string{
	"", "2026-11-20", "2026-11-20T04:00Z", "2026-11-20T04:00:00", "2026-11-20 04:00:00Z", "2026-11-20t04:00:00Z",
	"2026-11-20T04:00:00z", "2026-11-20T04:00:00Z ", " 2026-11-20T04:00:00Z", "2026-11-20T04:00:00ZZ",
	"26-11-20T04:00:00Z", "+2026-11-20T04:00:00Z", "-026-11-20T04:00:00Z", "2026-00-20T04:00:00Z",
	"2026-13-20T04:00:00Z", "2026-11-00T04:00:00Z", "2026-11-31T04:00:00Z", "2026-02-29T04:00:00Z",
	"2026-11-20T4:00:00Z", "2026-11-20T24:00:00Z", "2026-11-20T04:60:00Z", "2026-11-20T04:00:-1Z",
	"2016-12-31T23:59:60Z", "2016-12-31T23:59:61Z",
	"2026-11-20T04:00:00,5Z", "2026-11-20T04:00:00.Z", "2026-11-20T04:00:00.+01:00", "2026-11-20T04:00:00+24:00",
	"2026-11-20T04:00:00+24:01", "2026-11-20T04:00:00+01:60", "2026-11-20T04:00:00+0100", "2026-11-20T04:00:00+01",
}

// FuzzRFC3339 compares with the grammar.
func FuzzRFC3339(f *testing.F) {
	for _, s := range append(notRFC3339, "2026-11-20T04:00:00.250Z", "2026-11-20T04:00:00.5-08:00",
		"2026-11-20T23:59:59+23:59", "2026-11-20T00:00:00-23:59", "2024-02-29T00:00:00Z", "0000-01-01T00:00:00Z",
		"2026-11-20T04:00:00.1239999999Z", "2026-11-20T04:00:00-00:00", "9999-12-31T23:59:59Z") {
		f.Add([]byte(s))
	}
	grammar := regexp.MustCompile(
		`^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
	f.Fuzz(func(t *testing.T, b []byte) {
		at, ok := parseRFC3339(b)
		want, err := time.Parse(time.RFC3339, string(b))
		if exact := err == nil && grammar.Match(b); ok != exact {
			t.Fatalf("%q: accepted %t, want %t", b, ok, exact)
		}
		if ok && at != signal.At(want) {
			t.Fatalf("%q: %v, want %v", b, at.Time(), want)
		}
	})
}
