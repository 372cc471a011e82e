package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"carstate/internal/access"
)

// AddSource adds a source; a zero expires is never. The key is to be shown once.
func (d *Deeds) AddSource(ctx context.Context, by, name string, v access.Vehicles, expires time.Time) (access.Source, string, error) {
	if err := d.checkGrantable(slices.Collect(v.Sorted())...); err != nil {
		return access.Source{}, "", err
	}
	src, key, err := access.AddSource(name, v, expires, d.cfg.Now())
	if err != nil {
		return access.Source{}, "", refuse(http.StatusBadRequest, "%v", err)
	}
	e := access.Event{Action: "source.add", Object: src.Name, Detail: "vehicles " + d.inWords(src.Vehicles)}
	err = d.do(ctx, by, e, func(ctx context.Context) error { return d.cfg.Keeper.CreateSource(ctx, src) })
	if err != nil {
		return access.Source{}, "", err
	}
	return src, key, nil
}

// RemoveSource removes once; a second time changes nothing and returns the same.
func (d *Deeds) RemoveSource(ctx context.Context, by, name string) (src access.Source, err error) {
	known, ok := d.cfg.Sources.Get(name)
	if !ok {
		// Free text from a path must not reach the audit.
		return access.Source{}, errNoRecord
	}
	if !known.Removed.IsZero() {
		return *known, nil
	}
	now := wireTime(d.cfg.Now())
	err = d.do(ctx, by, access.Event{Action: "source.remove", Object: name}, func(ctx context.Context) (err error) {
		src, err = d.cfg.Keeper.UpdateSource(ctx, name, func(src *access.Source) error {
			src.Removed = now
			return nil
		})
		return err
	})
	return src, err
}

// RotateSource is [Deeds.RotateToken] for the key of a source.
func (d *Deeds) RotateSource(ctx context.Context, by, name string, overlap time.Duration) (src access.Source, key string, err error) {
	if known, ok := d.cfg.Sources.Get(name); !ok || !known.Removed.IsZero() {
		// Free text from a path must not reach the audit.
		return access.Source{}, "", errNoRecord
	}
	now := d.cfg.Now()
	key, hash := access.NewSecret(access.SourceKind)
	e := access.Event{Action: "source.rotate", Object: name, Detail: overlapInWords(overlap)}
	err = d.do(ctx, by, e, func(ctx context.Context) (err error) {
		src, err = d.cfg.Keeper.UpdateSource(ctx, name, func(stored *access.Source) error {
			if err := stored.Rotate(hash, overlap, now); err != nil {
				return refuse(http.StatusConflict, "%v", err)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return access.Source{}, "", err
	}
	return src, key, nil
}
