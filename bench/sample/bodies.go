package sample

import (
	"fmt"
	"strconv"
	"time"
)

// body is an NDJSON text. Only its times change from one request to the next, so the sender needs
// almost no CPU to prepare it.
type body struct {
	text   []byte
	times  []int // offset of each sample's time in text, in order
	perCar int   // samples of one car, consecutive
	cars   int
}

// timeText is the format of a time: RFC 3339 with milliseconds.
const timeText = "2006-01-02T15:04:05.000Z"

// step is the time between two samples of one car.
const step = 100 * time.Millisecond

// newBody returns a body of the cars first, first+1, …, with perCar samples each.
func newBody(first, cars, perCar int) *body {
	b := &body{perCar: perCar, cars: cars}
	for c := range cars {
		for range perCar {
			b.text = append(b.text, `{"vid":"`...)
			b.text = append(b.text, vid(first+c)...)
			b.text = append(b.text, `","time":"`...)
			b.times = append(b.times, len(b.text))
			b.text = append(b.text, timeText...)
			n := first + c + len(b.times)
			b.text = append(b.text, `","signals":{"Vehicle.Speed":`...)
			b.text = strconv.AppendFloat(b.text, 20+float64(n%600)/10, 'f', 1, 64)
			b.text = append(b.text, `,"Vehicle.OBD.ThrottlePosition":`...)
			b.text = strconv.AppendFloat(b.text, 15+float64(n%100)/10, 'f', 1, 64)
			b.text = append(b.text, `,"Vehicle.OBD.EngineSpeed":`...)
			b.text = strconv.AppendInt(b.text, int64(1500+n%400), 10)
			b.text = append(b.text, "}}\n"...)
		}
	}
	return b
}

func (b *body) samples() int { return len(b.times) }

// stamp sets the times. Each car's samples begin at start and are step apart.
func (b *body) stamp(start time.Time) {
	var text [32]byte
	for k := range b.perCar {
		at := start.Add(time.Duration(k)*step).UTC().AppendFormat(text[:0], timeText)
		for i := k; i < len(b.times); i += b.perCar {
			copy(b.text[b.times[i]:], at)
		}
	}
}

// vid returns the id of car n. It is as long as the ids in the documentation.
func vid(n int) string { return fmt.Sprintf("NHeN4UqVsohGS5%07d", n) }
