//go:build !race

package ingest_test

import (
	"fmt"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/test/testkit"
)

// cheapBodies are cheap for their sender, and as expensive as possible for the service.
func cheapBodies() map[string]request {
	const size = 1 << 20
	const gz = "Content-Encoding: gzip"
	object := gz + "\nContent-Type: application/json"
	return map[string]request{
		"line ends":         {header: gz, body: zip(strings.Repeat("\n", size)), status: 413},
		"blanks in lines":   {header: gz, body: zip(strings.Repeat(strings.Repeat(" ", maxSample-1)+"\n", size/maxSample)), status: 413},
		"commas":            {header: object, body: zip("[" + strings.Repeat(",", size) + "]"), status: 413},
		"blanks in array":   {header: object, body: zip("[" + strings.Repeat(" ", size) + "]"), status: 413},
		"bad lines":         {header: gz, body: zip(strings.Repeat("x\n", maxSamples)), status: 400},
		"bad objects":       {header: gz, body: zip(strings.Repeat(`{"a":[1]}`+"\n", maxSamples)), status: 400},
		"bad vids":          {header: gz, body: zip(strings.Repeat(sampleLine("V9", 1, 1)+"\n", maxSamples/2)), status: 403},
		"many line ends":    {body: strings.Repeat("\r\n", maxSamples+1), status: 413},
		"unknown and cheap": {header: gz, body: zip(strings.Repeat(`{"vid":"V1","time":1,"signals":{"a":1}}`+"\n", 3000)), status: 400},
	}
}

// The table of package format has more.
func TestHTTPCheapMapped(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	key := f.mappedSource(t, "tesla", "tesla", access.AllVehicles())
	wrong := func(n int, why string) string {
		return fmt.Sprintf(`{"accepted":0,"rejected":[{"line":%d,"reason":%q}]}`, n, why)
	}
	const data = `"createdAt":"2026-11-20T04:00:01Z","data":[`
	for _, r := range []request{
		{body: "{" + data + strings.Repeat("{},", maxMapped/4) + `{}],"vin":"V1"}`, status: 400, answer: wrong(1, format.ErrWork.Error())},
		{body: strings.Repeat("\n[", maxMapped/2), status: 400},
	} {
		r.send(t, url, key)
	}
	key = f.mappedSource(t, "lenient", "lenient", access.AllVehicles())
	request{body: strings.Repeat("1\n", maxSamples+1), status: 400}.send(t, url, key) // after a thousand
}

func TestHTTPCheapBytes(t *testing.T) {
	testkit.Slow(t, "it sends the largest bodies")
	f := newFixture(t)
	_, url := startHTTP(t, f)
	_, key := f.addSource(t, access.Credential{Name: "unlimited", Vehicles: f.source.Vehicles, Rate: access.NoRate})
	for _, r := range cheapBodies() {
		r.send(t, url, key)
	}
	// Honest samples are compressed less.
	lines := ""
	for i := range maxSamples {
		lines += fmt.Sprintf(`{"vid":"V1","time":%d,"signals":{"Vehicle.Speed":1}}`+"\n", 1795147200000-i*1000)
	}
	request{header: "Content-Encoding: gzip", body: zip(lines), status: 202}.send(t, url, key)
	request{body: strings.Repeat("\n", maxSamples-1) + sampleLine("V1", 1, 1), status: 202}.send(t, url, key)
}
