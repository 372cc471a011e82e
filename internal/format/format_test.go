package format_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// In a file of testdata, a message has its topic after its name.
func TestPresets(t *testing.T) {
	names, abouts := format.Presets()
	for i, name := range names {
		if f, err := format.Parse(name); err != nil || f.String() != name || abouts[i] == "" {
			t.Errorf("%s: got %s, error %v; want it back, with a text about it", name, f, err)
		}
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 9 {
		t.Fatalf("the files: got %d, error %v; want 9 or more", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		cases := archive(t, file)
		for i := 0; i < len(cases); i += 2 {
			message, want := cases[i], cases[i+1]
			_, topic, _ := strings.Cut(message.Name, " ")
			if got := decode(t, name, topic, string(message.Data)); got != string(want.Data) {
				t.Errorf("%s %s:\ngot\n%swant\n%s", file, topic, got, want.Data)
			}
		}
	}
}

func archive(t *testing.T, file string) []txtar.File {
	t.Helper()
	a, err := txtar.ParseFile(file)
	testkit.NoError(t, err)
	return a.Files
}

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func decode(t *testing.T, mapping, topic, body string) string {
	t.Helper()
	f, err := format.Parse(mapping)
	testkit.NoError(t, err)
	var b strings.Builder
	m := format.Message{Body: []byte(strings.TrimSpace(body)), Topic: topic, Now: signal.At(now)}
	if topic == "vehicles/CarX/telemetry" {
		m.Vehicle = "CarX"
	}
	format.NewDecoder().Decode(f, m, func(s *format.Sample) bool {
		switch {
		case s.Err != nil:
			fmt.Fprintln(&b, "refused:", s.Err)
			return true
		case s.Skipped:
			fmt.Fprintln(&b, "skipped")
			return true
		}
		at := s.Time.Time().Format(time.RFC3339Nano)
		if s.Time == signal.At(now) {
			at = "now"
		}
		fmt.Fprintf(&b, "%s %s", s.Vehicle, at)
		for i := range signal.Signal(signal.Num) {
			name := strings.Split(i.String(), ".")
			short := name[len(name)-1]
			if i == signal.OBDSpeed {
				short = "OBD.Speed"
			}
			if v, ok := s.Value(i); ok {
				fmt.Fprintf(&b, " %s=%.6g", short, v)
			}
		}
		if s.External != "" {
			fmt.Fprintf(&b, " (%s)", s.External)
		}
		b.WriteString("\n")
		for _, u := range s.Unused {
			fmt.Fprintln(&b, " ", u.Signal, u.Err)
		}
		return true
	})
	return b.String()
}

func TestParseRefuses(t *testing.T) {
	const head = "vid: {path: $.id}\ntime: {unit: arrival}\n"
	refused := map[string]string{
		"\n":                           "the mapping is empty",
		head + "? \"a b\\e[31m\"\n: 1": "line 3: a mapping has no such name here",
		head + "signals: {Vehicle.Speed: {path: \"$" + strings.Repeat(".a", 17) + "\"}}": "at most 16",
		"vid: {topic: [" + strings.Repeat("9", 400) + "]}":                               "line 1: a value of another type is needed",
		head + "signals: {" + strings.Repeat("x", 1000) + ": {}}":                        strings.Repeat("x", 60) + "\" is not a signal",
		head + "signals: {" + numbered("S%d: {path: a},", 15000) + "}":                   "signals: at most 64",
		head + "value: " + strings.Repeat("[", 15000):                                    "exceeded max depth",
		head + "about: \xff": "UTF-8",
		head + "topics: &a [" + strings.Repeat("a,", 2600) + "]\nsignals: {Vehicle.Speed: [" +
			strings.Repeat("{path: *a},", 800) + "]}": "a mapping has no aliases",
		head + strings.Repeat("# long\n", 3000):                                        "at most 16384 bytes",
		head + "signals: {Vehicle.Speed: {path: [" + strings.Repeat("a,", 300) + "]}}": "at most 256 paths",
	}
	for _, c := range archive(t, "testdata/refused.txtar") {
		refused[strings.TrimSpace(string(c.Data))] = c.Name
	}
	for text, want := range refused {
		_, err := format.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80s: error %v, want %q", text, err, want)
		}
	}
}

func TestMappings(t *testing.T) {
	const mapping = "vid: {path: v}\ntime: {path: t}\nsignals: {Vehicle.Speed: {path: s}}\n"
	digits, nested := strings.Repeat("9", 400), strings.Repeat("[", 20000)
	cases := []txtar.File{
		{Data: []byte(mapping)},
		{Data: []byte(`{"v":"` + strings.Repeat("x", 257) + `"} {"v":{"v":1}} {"v":null} 3 "x" [[1]] {"v":12.5}`)},
		{Data: []byte("refused: " + format.ErrLongVID.Error() + "\n" +
			strings.Repeat("refused: "+format.ErrNoVID.Error()+"\n", 5) + "refused: " + format.ErrVID.Error() + "\n")},
		{Data: []byte(mapping)}, {Data: []byte(nested)}, {Data: []byte("refused: " + format.ErrSyntax.Error() + "\n")},
		{Data: []byte(mapping)},
		{Data: []byte(`{"v":"A","t":1,"s":1e400}{"v":"B","t":1,"s":-1e400}{"v":"A","t":1e400}{"v":"A","t":-1}{"v":"A","t":"NaN"}` +
			`{"v":"A","t":` + digits + `}`)},
		{Data: []byte("A 1970-01-01T00:00:00.001Z\n  Vehicle.Speed impossible value: Vehicle.Speed must be between 0 and 500 km/h\n" +
			"B 1970-01-01T00:00:00.001Z\n  Vehicle.Speed not available\n" +
			strings.Repeat("refused: "+format.ErrTime.Error()+"\n", 4))},
	}
	cases = append(cases, archive(t, "testdata/mappings.txtar")...)
	for i := 0; i < len(cases); i += 3 {
		mapping, body, want := string(cases[i].Data), string(cases[i+1].Data), string(cases[i+2].Data)
		if got := decode(t, mapping, "", body); got != want {
			t.Errorf("%s%.60s:\ngot\n%swant\n%s", mapping, body, got, want)
		}
	}
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Some of these messages took minutes before their cost was limited.
func TestHostileMessages(t *testing.T) {
	const size = 1<<20 - 100
	const tail = "\ntime: {unit: arrival}\nsignals: {Vehicle.Speed: {path: s}, Vehicle.OBD.DTCList: {path: $.c}}\n"
	const each = "each: $.l[*]\nname: {path: \"@.n\"}\ntime: {unit: arrival}\nunder: $\nvid: "
	items := `"l":[` + strings.Repeat("{},", size/6) + `1]}`
	long := `{"v":"` + strings.Repeat("A", size/2) + `",` + items
	const codes = "each: $.l[*]\nvid: {path: $.v}\ntime: {unit: arrival}\nsignals: {Vehicle.OBD.DTCList: {path: $.c}}\n"
	for name, c := range map[string]struct {
		mapping, body string
		samples       int // at most
		want          error
	}{
		"names":        {"vid: {path: v}" + tail, `{` + numbered(`"n%d":1,`, size) + `"v":"A"}`, 1, nil},
		"open arrays":  {"vid: {path: v}" + tail, strings.Repeat("\n[", size/2), 9, format.ErrSyntax},
		"open objects": {"vid: {path: v}" + tail, strings.Repeat("\n{\"v\":", size/6), 9, format.ErrSyntax},
		"items":        {each + "{path: $.v}", `{"v":"A",` + strings.Repeat(" ", size/2) + items, 1, format.ErrWork},
		"long vid":     {each + "{path: $.v}", long, 20, format.ErrWork},
		"long hash":    {each + "{path: $.v, clean: hash}", long, 20, format.ErrWork},
		"codes":        {codes, `{"v":"A","c":[` + strings.Repeat(`"x",`, size/8) + `""],` + items, 20, format.ErrWork},
	} {
		f, err := format.Parse(c.mapping)
		if err != nil {
			t.Fatalf("%s: got %v, want no error", name, err)
		}
		n, last := 0, error(nil)
		format.NewDecoder().Decode(f, format.Message{Body: []byte(c.body), Now: 1}, func(s *format.Sample) bool {
			n++
			last = s.Err
			return true
		})
		if n > c.samples || last != c.want {
			t.Errorf("%s: %d samples, the last with the error %v, want at most %d and %v", name, n, last, c.samples, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	names, _ := format.Presets()
	f.Add(0, "owntracks/a/b", `{"_type":"location","tst":1,"vel":3}`)
	f.Add(3, "", `{"vin":"A","createdAt":"2026-11-28T10:00:01Z","data":[{"key":"VehicleSpeed","value":{"intValue":1}}]}`)
	d := format.NewDecoder()
	f.Fuzz(func(t *testing.T, preset int, topic, body string) {
		mapping, _ := format.Parse(names[uint(preset)%uint(len(names))])
		n := 0
		d.Decode(mapping, format.Message{Body: []byte(body), Topic: topic, Now: 1}, func(s *format.Sample) bool {
			if n++; s.Err == nil && !s.Skipped && vehicle.CheckID(string(s.Vehicle)) != nil || s.Time < 0 {
				t.Errorf("the sample: got %q at %d, want a valid vid and time", s.Vehicle, s.Time)
			}
			return true
		})
		if n > cmp.Or(len(body), 1) {
			t.Errorf("%d bytes: got %d samples, want at most as many", len(body), n)
		}
	})
}
