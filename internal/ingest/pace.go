package ingest

import "time"

// The least rate at which the bytes of a request's body or of an MQTT packet come.
const (
	grace       = 5 * time.Second  // after that the rate counts
	perByte     = time.Millisecond // 1 KB/s
	transitTime = 60 * time.Second // of a whole body or packet, however fast it comes
)

// pace sets the deadline for the next bytes of a body or packet.
type pace struct {
	of      interface{ SetReadDeadline(time.Time) error }
	began   time.Time
	grace   time.Duration
	came    int // bytes
	counted int // of those, the ones that the deadline has been set for
}

// begin sets the first deadline.
func (p *pace) begin(now time.Time, grace time.Duration) error {
	p.began, p.grace, p.came, p.counted = now, grace, 0, 0
	return p.set()
}

// add counts bytes that came, and moves the deadline once that is worth it.
func (p *pace) add(n int) error {
	if p.came += n; p.came-p.counted < 1000 {
		return nil
	}
	p.counted = p.came
	return p.set()
}

func (p *pace) set() error {
	return p.of.SetReadDeadline(p.began.Add(min(p.grace+time.Duration(p.came)*perByte, transitTime)))
}
