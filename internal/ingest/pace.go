package ingest

import "time"

// A packet or body may take grace, plus perByte for each byte, but at most transitTime.
const (
	grace       = 5 * time.Second
	perByte     = time.Millisecond // 1 KB/s
	transitTime = 60 * time.Second
)

type pace struct {
	of    interface{ SetReadDeadline(time.Time) error }
	began time.Time
	grace time.Duration
	came  int // bytes
}

func (p *pace) begin(now time.Time, grace time.Duration) {
	p.began, p.grace, p.came = now, grace, 0
	p.set()
}

// add moves the deadline in steps of 1,000 bytes.
func (p *pace) add(n int) {
	before := p.came
	if p.came += n; p.came/1000 != before/1000 {
		p.set()
	}
}

// SetReadDeadline fails only if the connection is closed, which the next read shows.
func (p *pace) set() {
	_ = p.of.SetReadDeadline(p.began.Add(min(p.grace+time.Duration(p.came)*perByte, transitTime)))
}
