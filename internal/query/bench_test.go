package query

import (
	"bufio"
	"bytes"
	"fmt"
	"testing"
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/http1"
	"example.org/carstate/internal/vehicle"
)

// BenchmarkAnswer measures a request from its head to its answer, without a connection, on one core.
func BenchmarkAnswer(b *testing.B) {
	f := newFixture(b)
	for i := range 100_000 {
		f.Fleet.Put(vehicle.ID(fmt.Sprintf("Car%d", i)), fleet.Answer{
			Driving: vehicle.DrivingVerdict{State: vehicle.NormalDriving, Time: vehicle.At(noon)},
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

// BenchmarkLoopback measures the whole server over loopback, client included. It does so with one
// request at a time, and with pipelined requests, which share the cost of system calls.
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
