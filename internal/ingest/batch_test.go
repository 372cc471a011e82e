package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

func testReader() *reader { return readers.New().(*reader) }

var anyone = origin{source: &access.Grant{Vehicles: access.AllVehicles()}, latest: testLatest,
	forgotten: func(vehicle.ID) bool { return false }, admit: func(vehicle.ID) bool { return true },
	verdicts: func(vehicle.ID) (d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) { return d, t }}

func rejectedLines(b *batch) (lines []int) {
	for _, r := range b.rejected {
		lines = append(lines, r.Line)
	}
	return lines
}

func TestLinesAreNumberedAndSorted(t *testing.T) {
	body := strings.Join([]string{
		sampleLine("V1", 3, 30),
		"",
		`nonsense`,
		"  \t",
		sampleLine("V2", 1, 10) + "\r",
		sampleLine("V1", 3, 31), // the same time: stays after the first
		`{"vid":"V1","time":1795147200000,"signals":{"Vehicle.Other":1}}`,
		`{}`,
		sampleLine("V1", 2, 20), // no line break at the end
	}, "\n")
	b, err := testReader().lineBatch(strings.NewReader(body), anyone)
	if err != nil {
		t.Fatal(err)
	}
	if got, wants := rejectedLines(b), []int{3, 8}; !slices.Equal(got, wants) {
		t.Errorf("rejected lines %v, want %v", got, wants)
	}
	m := &memory{samples: b.samples}
	m.wants(t, "V2 10", "V1 20", "V1 30", "V1 31")
	if b.accepted != 5 || b.ignored.count != 1 {
		t.Errorf("accepted %d, ignored %d; want 5 (one says nothing of use) and 1", b.accepted, b.ignored.count)
	}
}

func TestBatchLimits(t *testing.T) {
	padded := func(n int) string { // a sample of n bytes
		s := sampleLine("V1", 1, 1)
		return `{"x":"` + strings.Repeat("x", n-len(s)-len(`"x":"",`)) + `",` + s[1:]
	}
	many := func(n int) string { return strings.Repeat(sampleLine("V1", 1, 1)+"\n", n) }
	for name, c := range map[string]struct {
		body     string
		object   bool
		err      error
		accepted int
	}{
		"largest sample":                {padded(MaxSample), false, nil, 1},
		"largest sample, CR LF":         {padded(MaxSample) + "\r\n" + padded(MaxSample), false, nil, 2},
		"too large a sample":            {padded(MaxSample + 1), false, errSampleTooLarge, 0},
		"most samples":                  {many(MaxSamples), false, nil, MaxSamples},
		"too many samples":              {many(MaxSamples + 1), false, errTooManySamples, 0},
		"largest object":                {padded(MaxSample), true, nil, 1},
		"too large an object":           {padded(MaxSample + 1), true, errSampleTooLarge, 0},
		"empty lines are not samples":   {strings.Repeat("\n", MaxSamples-1) + padded(100), false, nil, 1},
		"empty lines are lines":         {strings.Repeat("\n", MaxSamples) + padded(100), false, errTooManySamples, 0},
		"nothing, where one is awaited": {" \n", true, nil, 0},
		"nothing":                       {"", false, nil, 0},
	} {
		rd := testReader()
		read := rd.lineBatch
		if c.object {
			read = rd.objectBatch
		}
		b, err := read(strings.NewReader(c.body), anyone)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want %v", name, err, c.err)
		} else if err == nil && (b.accepted != c.accepted || b.rejectedTotal() != 0) {
			t.Errorf("%s: accepted %d, rejected %v, want %d", name, b.accepted, b.rejected, c.accepted)
		}
	}
}

// TestMessageBatch_LinesOrOneObject checks that the samples of an MQTT message are accepted, and
// its bad lines refused, whether it is NDJSON or one object that spans lines, because the message
// does not say which of the two it is.
func TestMessageBatch_LinesOrOneObject(t *testing.T) {
	spread := func(s string) string { return strings.ReplaceAll(s, ",", ",\n") }
	good := sampleLine("V1", 1, 1)
	bad := `{"vid":"V1","time":1,"signals":{}}`
	for name, c := range map[string]struct {
		message  string
		accepted int
		rejected []string
	}{
		"one":                      {good, 1, nil},
		"one over many lines":      {spread(good), 1, nil},
		"pretty":                   {"{\n\"time\":1795147200000,\n\"signals\":{}\n}\n", 1, nil},
		"bad over many lines":      {spread(bad), 0, []string{"1 " + errSeconds.text}},
		"many":                     {good + "\n" + good, 2, nil},
		"many, the first bad":      {bad + "\n" + good, 1, []string{"1 " + errSeconds.text}},
		"many, the first cut off":  {good[:40] + "\n" + good, 1, []string{"1 " + errTruncated.text}},
		"many, the second cut off": {good + "\n" + good[:40], 1, []string{"2 " + errTruncated.text}},
		"nothing":                  {"", 0, nil},
	} {
		o := anyone
		o.topic = "V1"
		b, err := testReader().messageBatch([]byte(c.message), o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var rejected []string
		for _, r := range b.rejected {
			rejected = append(rejected, fmt.Sprint(r.Line, " ", r.Reason))
		}
		if b.accepted != c.accepted || !slices.Equal(rejected, c.rejected) {
			t.Errorf("%s: accepted %d, rejected %q; want %d, %q", name, b.accepted, rejected, c.accepted, c.rejected)
		}
	}
}
