package ops

import (
	"context"
	"net/http"
	"slices"
	"time"

	"carstate/internal/access"
)

// AddSource adds a source; a zero expires is never. The key is to be shown once.
func (p *Operations) AddSource(ctx context.Context, by, name string, v access.Vehicles, expires time.Time) (SourceRecord, string, error) {
	if err := p.checkGrantable(slices.Collect(v.Sorted())...); err != nil {
		return SourceRecord{}, "", err
	}
	s, key, err := access.AddSource(name, v, expires, p.cfg.Now())
	if err != nil {
		return SourceRecord{}, "", Refuse(http.StatusBadRequest, "%v", err)
	}
	e := access.Event{Action: "source.add", Object: s.Name, Detail: "vehicles " + p.inWords(s.Vehicles)}
	err = p.audited(ctx, by, e, func(ctx context.Context) error { return p.cfg.Store.CreateSource(ctx, s) })
	if err != nil {
		return SourceRecord{}, "", err
	}
	return p.sourceRecord(s), key, nil
}

// RotateSource is [Operations.RotateToken] for the key of a source.
func (p *Operations) RotateSource(ctx context.Context, by, name string, overlap time.Duration) (SourceRecord, string, error) {
	now := p.cfg.Now()
	key, hash := access.NewSecret(access.SourceKind)
	e := access.Event{Action: "source.rotate", Object: name, Detail: overlapInWords(overlap)}
	s, err := p.updateSource(ctx, by, e, func(s *access.Source) error {
		if err := s.Rotate(hash, overlap, now); err != nil {
			return Refuse(http.StatusConflict, "%v", err)
		}
		return nil
	})
	if err != nil {
		return SourceRecord{}, "", err
	}
	return p.sourceRecord(s), key, nil
}

// RemoveSource removes once; a second time changes nothing and returns the same.
func (p *Operations) RemoveSource(ctx context.Context, by, name string) (SourceSummary, error) {
	if s, ok := p.cfg.Sources.Get(name); ok && !s.Removed.IsZero() {
		return sourceSummary(*s), nil
	}
	now := wireTime(p.cfg.Now())
	s, err := p.updateSource(ctx, by, access.Event{Action: "source.remove", Object: name}, func(s *access.Source) error {
		s.Removed = now
		return nil
	})
	return sourceSummary(s), err
}

// updateSource audits and applies a change to the source that the event names.
func (p *Operations) updateSource(ctx context.Context, by string, e access.Event, change func(*access.Source) error) (s access.Source, err error) {
	if known, ok := p.cfg.Sources.Get(e.Object); !ok || !known.Removed.IsZero() {
		// Free text from a path must not reach the audit.
		return access.Source{}, errNoRecord
	}
	err = p.audited(ctx, by, e, func(ctx context.Context) (err error) {
		s, err = p.cfg.Store.UpdateSource(ctx, e.Object, change)
		return err
	})
	return s, err
}
