package telemetry

import (
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
)

var (
	errDense   = NewRefusal(access.OverLimit, "there are too many samples for the size of the message: send them by HTTP")
	errSameVID = NewRefusal(access.BadVID, "another vehicle of this source already has this vid without its other "+
		"characters: the operator can give the mapping a table, or clean: hash")
)

// Errors not listed are of a wrong vid.
var mappedKinds = map[error]access.Refusal{
	format.ErrSyntax: access.Malformed, format.ErrForm: access.Malformed, format.ErrTopic: access.BadTopic,
	format.ErrNoTime: access.BadTime, format.ErrTime: access.BadTime, format.ErrWork: access.OverLimit,
}

func (rd *reader) readMapped(m format.Message) (err error) {
	b, n := rd.batch, 0
	m.Now, m.Vehicle = rd.Now, rd.Vehicle
	if v := rd.Source.Vehicles; m.Vehicle == "" && !v.All() && v.Len() == 1 {
		m.Vehicle = v.Sorted()[0]
	}
	rd.mapped.Decode(rd.Source.Format, m, func(s *format.Sample) bool {
		if n++; n > MaxSamples {
			err = errTooManySamples
			return false
		}
		if s.Skipped {
			b.Accepted++
			return true
		}
		rd.accept(n, &s.Sample, rd.checkMapped(s))
		switch {
		case b.hopeless(n):
			return false
		case rd.Reserve != nil && !rd.Reserve(b.Bytes):
			err = ErrNoMemory
		case rd.Reserve == nil && len(b.Samples) > 1 && len(b.Samples)*sampleBytes > Growth*len(m.Body):
			err = errDense
		}
		return err == nil
	})
	b.Sort()
	return err
}

func (rd *reader) checkMapped(s *format.Sample) *Refusal {
	rd.dec.unknown, rd.dec.unused = rd.dec.unknown[:0], rd.dec.unused[:0]
	for _, u := range s.Unused {
		rd.dec.unused = append(rd.dec.unused, unusedValue{[]byte(u.Signal.String()), whyUnused(u.Signal, u.Err)})
	}
	switch {
	case s.Err != nil:
		kind, ok := mappedKinds[s.Err]
		if !ok {
			kind = access.BadVID
		}
		return NewRefusal(kind, s.Err.Error())
	case rd.Vehicle != "" && s.Vehicle != rd.Vehicle:
		return errOtherVID
	}
	if why := checkTime(s.Time, rd.latest); why != nil {
		return why
	}
	if s.External != "" && rd.Source.Vehicles.Include(s.Vehicle) && rd.Admit(s.Vehicle) &&
		!rd.Source.Claim(s.Vehicle, s.External) {
		return errSameVID
	}
	return nil
}
