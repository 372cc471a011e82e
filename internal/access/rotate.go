package access

import (
	"fmt"
	"slices"
	"time"
)

// CheckOverlap returns an error if d is not a valid overlap: the time, from 0 to [MaxOverlap], for
// which a replaced secret stays valid.
func CheckOverlap(d time.Duration) error {
	if d < 0 || d > MaxOverlap {
		return fmt.Errorf("the overlap is from 0 to %d days", MaxOverlap/(24*time.Hour))
	}
	return nil
}

// Rotate replaces the credential's secret by a new one with the given hash. The replaced secret
// stays valid for the time overlap, or ends at once if the kind of credential permits no overlap.
// The secrets that earlier rotations have replaced end at the same time, unless their own end is
// earlier. So after a rotation without overlap, only the new secret is valid; this is needed after
// a secret has leaked. Of the secrets that have ended, only the last maxEnded are kept.
//
// If the record already has this hash, Rotate changes nothing and returns nil. If the credential is
// not usable, overlap is not valid, or more than maxEarlier replaced secrets would be valid, Rotate
// changes nothing and returns an error.
func (c *Credential) Rotate(hash Hash, overlap time.Duration, now time.Time) error {
	policy := c.Kind.Policy()
	// If the response to a rotation was lost, a retry must succeed, even if the record was changed
	// after the rotation.
	if c.Hash == hash || slices.ContainsFunc(c.Earlier, func(e Earlier) bool { return e.Hash == hash }) {
		return nil
	}
	if err := c.Usable(now); err != nil {
		return fmt.Errorf("the %s cannot be rotated: %w", policy.Noun, err)
	}
	if err := CheckOverlap(overlap); err != nil {
		return err
	}
	until := now.Add(overlap).UTC().Truncate(time.Millisecond)
	switch {
	case !policy.Overlap:
		until = time.Unix(0, 0).UTC() // valid on no node, whatever its clock says
	case overlap == 0:
		until = now.Add(-maxSkew).UTC().Truncate(time.Millisecond) // no longer valid even on a node whose clock is slow
	}
	kept := append(slices.Clone(c.Earlier), Earlier{c.Hash, until})
	ended := 0
	for i := range kept {
		if kept[i].Until.After(until) {
			kept[i].Until = until
		}
		if !kept[i].Until.After(now) {
			ended = i + 1 // the ends are in ascending order, so these come first
		}
	}
	if len(kept)-ended > maxEarlier {
		return fmt.Errorf("%d replaced secrets are still valid: wait until one has ended, or rotate with no "+
			"overlap to end them all", maxEarlier)
	}
	c.Hash, c.Earlier, c.Rotated = hash, slices.Clone(kept[max(0, ended-maxEnded):]),
		now.UTC().Truncate(time.Millisecond)
	return nil
}
