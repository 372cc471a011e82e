package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"carstate/internal/access"
)

// rotateToken gives a token a new secret. What somebody else rotated meanwhile
// is rotated again: of two that rotate at once, both get a secret that counts,
// the first for the overlap that the second asked for.
func (s *Server) rotateToken(r *http.Request, in rotateRequest) (RotatedToken, error) {
	overlap, err := in.overlap()
	if err != nil {
		return RotatedToken{}, err
	}
	known, ok := s.cfg.Tokens.Get(r.PathValue("id"))
	if !ok {
		return RotatedToken{}, access.ErrNotFound
	}
	now := s.cfg.Now()
	secret, hash := access.NewSecret(known.Kind())
	var t access.Token
	_, err = s.updateToken(r, access.Event{Action: "token.rotate", Detail: overlapInWords(overlap)}, func(stored *access.Token) error {
		if err := stored.Rotate(hash, overlap, now); err != nil {
			return refuse(http.StatusConflict, "%v", err)
		}
		t = *stored
		return nil
	})
	if err != nil {
		return RotatedToken{}, err
	}
	return RotatedToken{t.ID, secret, t.Developer, orNil(t.Expires), earlierUntil(t.Earlier, now)}, nil
}

// rotateSource is rotateToken for the key of a source.
func (s *Server) rotateSource(r *http.Request, in rotateRequest) (RotatedSource, error) {
	overlap, err := in.overlap()
	if err != nil {
		return RotatedSource{}, err
	}
	name, now := r.PathValue("name"), s.cfg.Now()
	if known, ok := s.cfg.Sources.Get(name); !ok || !known.Removed.IsZero() {
		// Free text from a path must not reach the audit.
		return RotatedSource{}, access.ErrNotFound
	}
	key, hash := access.NewSecret(access.SourceKind)
	var src access.Source
	e := access.Event{Action: "source.rotate", Object: name, Detail: overlapInWords(overlap)}
	err = s.deed(r, e, func(ctx context.Context) (err error) {
		src, err = s.cfg.Keeper.UpdateSource(ctx, name, func(stored *access.Source) error {
			if err := stored.Rotate(hash, overlap, now); err != nil {
				return refuse(http.StatusConflict, "%v", err)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return RotatedSource{}, err
	}
	return RotatedSource{src.Name, key, earlierUntil(src.Earlier, now)}, nil
}

// overlap is how long the old secret is to count.
func (in rotateRequest) overlap() (time.Duration, error) {
	if in.OverlapSeconds == nil {
		return access.DefaultOverlap, nil
	}
	seconds := *in.OverlapSeconds
	// Compared in seconds, because more of them than that may not fit.
	if limit := int64(access.MaxOverlap / time.Second); seconds < 0 || seconds > limit {
		return 0, refuse(http.StatusBadRequest, "overlap_seconds is a number from 0 to %d", limit)
	}
	return time.Duration(seconds) * time.Second, nil
}

func overlapInWords(d time.Duration) string {
	if d == 0 {
		return "the old one ends at once"
	}
	return fmt.Sprintf("the old one counts for %s more", d)
}

// earlierUntil lists when secrets end that were replaced and still count.
func earlierUntil(all []access.Earlier, now time.Time) []time.Time {
	until := []time.Time{}
	for _, e := range all {
		if e.Until.After(now) {
			until = append(until, e.Until)
		}
	}
	return until
}
