package vehicle

import (
	"math"
	"slices"
	"time"

	"example.org/carstate/internal/signal"
)

// A car answers with one list for each of its computers and services (stored, pending, permanent),
// so a list without a code says that it is gone only when, by the rhythm of such lists, the code
// was due again. It is over a minute later.
func (s *State) observeCodes(r *signal.Readings) {
	m := &s.ThrottleMemory
	now := s.Time
	if r.Has(signal.DTCList) {
		now = s.Latest[signal.DTCList].Time
		after := (now - m.CodeSeen) / 1000
		if i := slices.IndexFunc(r.Codes, signal.TroubleCode.IsThrottle); i >= 0 {
			if after <= signal.UnixMilli(signal.NewDrive/time.Second) {
				m.CodeGap = max(m.CodeGap, uint16(after))
			}
			s.FaultCode, m.CodeSeen, m.CodeGone = r.Codes[i], now, 0
		} else if s.FaultCode != (signal.TroubleCode{}) && m.CodeGone == 0 && after >= m.codeDue() {
			m.CodeGone = uint16(min(after, math.MaxUint16))
			m.CodeSeen = now - 1000*signal.UnixMilli(m.CodeGone)
		}
	}
	if m.CodeGone != 0 && (now-m.CodeSeen)/1000-signal.UnixMilli(m.CodeGone) >= codeGoneFor {
		s.FaultCode, m.CodeGone = signal.TroubleCode{}, 0
	}
}

func (m *ThrottleMemory) codeDue() signal.UnixMilli {
	if m.CodeGap == 0 {
		return codeGoneFor
	}
	return signal.UnixMilli(max(m.CodeGap, codeRoundFor))
}

func (s *State) relearn(t signal.UnixMilli) {
	clear(s.Latest[signal.EngineLoad : signal.MILOn+1])
	s.Latest[signal.DTCList].Time = t // so that the same sample again changes nothing
	s.FaultCode, s.ThrottleMemory, s.Time = signal.TroubleCode{}, ThrottleMemory{}, max(s.Time, t)
}

func (s *State) addsCode(x *Sample) bool {
	return s.ThrottleMemory.CodeSeen != x.Time && slices.ContainsFunc(x.Codes, signal.TroubleCode.IsThrottle)
}
