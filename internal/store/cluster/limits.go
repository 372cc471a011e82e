package cluster

import (
	"context"

	"carstate/internal/store/codec"
)

// fullAlarm is the part of a stream's bytes, in percent, at which its filling up
// is logged; it is logged again after it has fallen below fullOver.
const (
	fullAlarm = 80
	fullOver  = 75
)

// watchLimits shows how full each stream is, and logs those that fill up.
// TELEMETRY is not logged: it fills and is trimmed all the time, and says
// store.ErrBacklog when that is not enough.
func (e *Engine) watchLimits(ctx context.Context, alarmed map[string]bool) error {
	for _, name := range codec.Streams {
		s, err := e.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		e.metrics.Fills(name, info.State.Bytes, uint64(info.Config.MaxBytes))
		e.metrics.records.WithLabelValues(name).Set(float64(info.State.Msgs))
		percent := info.State.Bytes * 100 / uint64(info.Config.MaxBytes)
		switch {
		case name == codec.Telemetry:
		case percent >= fullAlarm && !alarmed[name]:
			alarmed[name] = true
			e.log.Error("a stream is filling up", "stream", name, "percent", percent, "limit_bytes", info.Config.MaxBytes)
		case percent < fullOver:
			delete(alarmed, name)
		}
	}
	return nil
}
