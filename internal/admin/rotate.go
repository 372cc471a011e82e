package admin

import (
	"fmt"
	"net/http"
	"time"

	"carstate/internal/access"
)

func (s *Server) rotateToken(r *http.Request, in rotateRequest) (RotatedToken, error) {
	overlap, err := in.overlap()
	if err != nil {
		return RotatedToken{}, err
	}
	t, secret, err := s.deeds.RotateToken(r.Context(), caller(r), r.PathValue("id"), overlap)
	if err != nil {
		return RotatedToken{}, err
	}
	return RotatedToken{t.ID, secret, t.Developer, orNil(t.Expires), earlierUntil(t.Earlier, s.cfg.Now())}, nil
}

func (s *Server) rotateSource(r *http.Request, in rotateRequest) (RotatedSource, error) {
	overlap, err := in.overlap()
	if err != nil {
		return RotatedSource{}, err
	}
	src, key, err := s.deeds.RotateSource(r.Context(), caller(r), r.PathValue("name"), overlap)
	if err != nil {
		return RotatedSource{}, err
	}
	return RotatedSource{src.Name, key, earlierUntil(src.Earlier, s.cfg.Now())}, nil
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
