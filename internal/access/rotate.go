package access

import (
	"fmt"
	"slices"
	"time"
)

func CheckOverlap(d time.Duration) error {
	if d < 0 || d > MaxOverlap {
		return fmt.Errorf("the overlap is from 0 to %d days", MaxOverlap/(24*time.Hour))
	}
	return nil
}

// Rotate gives the credential the secret with this hash. The replaced one stays valid for overlap,
// if the kind permits one, and older ones not longer: without overlap, only the new secret is
// valid. After an error, or if the record has the hash already, nothing is changed.
func (c *Credential) Rotate(hash Hash, overlap time.Duration, now time.Time) error {
	policy := c.Kind.Policy()
	// A retry must succeed if the response was lost, even if the record has changed.
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
	if overlap == 0 || !policy.Overlap {
		until = time.Unix(0, 0).UTC() // valid on no node, whatever its clock says
	}
	kept := append(slices.Clone(c.Earlier), Earlier{c.Hash, until})
	ended := 0
	for i := range kept {
		if kept[i].Until.After(until) {
			kept[i].Until = until
		}
		if !kept[i].Until.After(now) {
			ended = i + 1 // Until ascends, so the ended ones come first
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
