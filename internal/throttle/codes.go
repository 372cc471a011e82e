package throttle

import (
	"math"
	"slices"
	"time"

	"example.org/carstate/internal/signal"
)

// ObserveCodes folds the list of r, which Latest must have; now is the time of the newest reading.
//
// A car answers with a list for each computer and service (stored, pending, permanent). So a list
// without a throttle code says that it is gone only when, by the rhythm of the lists with one, the
// next was due. The fault is over codeGoneFor later.
func (c Car) ObserveCodes(r *signal.Readings, now signal.UnixMilli) {
	m := c.Memory
	if r.Has(signal.DTCList) {
		now = c.Latest[signal.DTCList].Time
		after := (now - m.CodeSeen) / 1000
		if i := slices.IndexFunc(r.Codes, signal.TroubleCode.IsThrottle); i >= 0 {
			if after <= signal.UnixMilli(signal.NewDrive/time.Second) {
				m.CodeGap = max(m.CodeGap, uint16(after))
			}
			m.FaultCode, m.CodeSeen, m.CodeGone = r.Codes[i], now, 0
		} else if m.FaultCode != (signal.TroubleCode{}) && m.CodeGone == 0 && after >= m.codeDue() {
			m.CodeGone = uint16(min(after, math.MaxUint16))
			m.CodeSeen = now - 1000*signal.UnixMilli(m.CodeGone)
		}
	}
	if m.CodeGone != 0 && (now-m.CodeSeen)/1000-signal.UnixMilli(m.CodeGone) >= codeGoneFor {
		m.FaultCode, m.CodeGone = signal.TroubleCode{}, 0
	}
}

func (m *Memory) codeDue() signal.UnixMilli {
	if m.CodeGap == 0 {
		return codeGoneFor
	}
	return signal.UnixMilli(max(m.CodeGap, codeRoundFor))
}

// AddsCode reports whether codes, read at t, have a throttle code, and earlier lists of that time
// had none.
func (m *Memory) AddsCode(codes []signal.TroubleCode, t signal.UnixMilli) bool {
	return m.CodeSeen != t && slices.ContainsFunc(codes, signal.TroubleCode.IsThrottle)
}
