package ingest

import "time"

// The minimum rate at which an MQTT packet or the body of a request must arrive.
const (
	grace       = 5 * time.Second  // before the rate applies
	perByte     = time.Millisecond // that is, 1 KB/s
	transitTime = 60 * time.Second // for a whole body or packet, at any rate
)

// pace sets the read deadlines that enforce the minimum rate of one body or packet.
type pace struct {
	of      interface{ SetReadDeadline(time.Time) error }
	began   time.Time
	grace   time.Duration
	came    int // bytes that have arrived
	counted int // the value of came for which the deadline was set
}

// begin is called when a body or packet begins to arrive, at the time now. It sets the first
// deadline. grace is how long the body or packet may take before the minimum rate applies.
func (p *pace) begin(now time.Time, grace time.Duration) error {
	p.began, p.grace, p.came, p.counted = now, grace, 0, 0
	return p.set()
}

// add counts n bytes that arrived. When 1,000 bytes or more have arrived since the deadline was
// last set, add extends the deadline by perByte for each of these bytes, but not beyond transitTime
// after the body or packet began to arrive.
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
