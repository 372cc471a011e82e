package ingest

import (
	"time"

	"carstate/internal/vehicle"
)

// parseRFC3339 reads a date-time by the grammar of RFC 3339, no more and no
// less: time.Parse refuses t, z and leap seconds, which the grammar has, and
// takes a comma and offsets of a day, which it has not. Beyond the grammar it
// holds to what RFC 3339 says of the calendar: the day is one of its month, and
// second 60 is the last of a month in UTC. That one counts as the start of the
// next second, whatever its fraction. Digits beyond the millisecond are dropped.
func parseRFC3339(b []byte) (vehicle.UnixMilli, bool) {
	p := timeParser{rest: b, ok: true}
	year := p.number(4, 0, 9999)
	p.oneOf("-")
	month := time.Month(p.number(2, 1, 12))
	p.oneOf("-")
	day := p.number(2, 1, 31)
	p.oneOf("Tt")
	hour := p.number(2, 0, 23)
	p.oneOf(":")
	minute := p.number(2, 0, 59)
	p.oneOf(":")
	second := p.number(2, 0, 60)
	milli := p.fraction()
	offset := p.offset()
	if !p.ok || len(p.rest) > 0 {
		return 0, false
	}
	leap := second == 60
	if leap {
		milli = 0
	}
	// A day that its month does not have, and second 60, roll over.
	if time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Day() != day {
		return 0, false
	}
	t := time.Date(year, month, day, hour, minute-offset, second, 0, time.UTC)
	if leap && (t.Day() != 1 || t.Hour() != 0 || t.Minute() != 0) {
		return 0, false
	}
	return vehicle.At(t) + vehicle.UnixMilli(milli), true
}

// timeParser reads a text from its start. Once something is not as it must be,
// ok is false.
type timeParser struct {
	rest []byte
	ok   bool
}

// number reads a number of so many digits.
func (p *timeParser) number(digits, least, most int) int {
	if len(p.rest) < digits {
		p.ok = false
		return least
	}
	n := 0
	for _, c := range p.rest[:digits] {
		if !isDigit(c) {
			p.ok = false
			return least
		}
		n = 10*n + int(c-'0')
	}
	p.rest = p.rest[digits:]
	p.ok = p.ok && least <= n && n <= most
	return n
}

// oneOf reads one of the characters and returns it.
func (p *timeParser) oneOf(set string) byte {
	if len(p.rest) > 0 {
		c := p.rest[0]
		for i := range len(set) {
			if c == set[i] {
				p.rest = p.rest[1:]
				return c
			}
		}
	}
	p.ok = false
	return 0
}

// fraction reads the fraction of a second, if there is one, as milliseconds.
func (p *timeParser) fraction() (milli int) {
	if len(p.rest) == 0 || p.rest[0] != '.' {
		return 0
	}
	n := 1
	for unit := 100; n < len(p.rest) && isDigit(p.rest[n]); n++ {
		milli += unit * int(p.rest[n]-'0')
		unit /= 10
	}
	p.ok = p.ok && n > 1
	p.rest = p.rest[n:]
	return milli
}

// offset reads how many minutes the time is ahead of UTC.
func (p *timeParser) offset() (minutes int) {
	sign := p.oneOf("Zz+-")
	if sign != '+' && sign != '-' {
		return 0
	}
	hours := p.number(2, 0, 23)
	p.oneOf(":")
	minutes = 60*hours + p.number(2, 0, 59)
	if sign == '-' {
		return -minutes
	}
	return minutes
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
