package access

import (
	"fmt"
	"slices"
	"time"
)

// Earlier is a secret that was replaced and counts for a while longer, so that
// whoever holds it has time to change over.
type Earlier struct {
	Hash  Hash
	Until time.Time // from then on it is refused
}

// Limits of a rotation.
const (
	// DefaultOverlap is how long a replaced secret counts if nobody says
	// otherwise.
	DefaultOverlap = 24 * time.Hour
	// MaxOverlap is how long a replaced secret may go on counting.
	MaxOverlap = 90 * 24 * time.Hour
	// maxEarlier is how many replaced secrets may count at once.
	maxEarlier = 8
	// maxEnded is how many replaced secrets are remembered that count no
	// longer, so that whoever still uses one is told that it was replaced.
	maxEnded = 8
	// maxSkew is how far the clocks of two nodes may be apart.
	maxSkew = time.Hour
)

// CheckOverlap says whether a replaced secret may count for so long.
func CheckOverlap(d time.Duration) error {
	if d < 0 || d > MaxOverlap {
		return fmt.Errorf("the overlap is from 0 to %d days", MaxOverlap/(24*time.Hour))
	}
	return nil
}

// Rotate replaces the secret by the one of hash. The replaced one counts for overlap
// more, if the policy allows any. A secret that an earlier rotation replaced keeps its
// end, but none outlives the one replaced now: with no overlap at all, the new one is
// the only one that counts, which is what somebody wants whose secret has leaked. Of
// those that have ended, the last few are kept to be told apart from secrets that never
// were.
func (c *Credential) Rotate(hash Hash, overlap time.Duration, now time.Time) error {
	policy := c.Kind.Policy()
	// The answer to this rotation was lost, and the record was changed since.
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
		until = time.Unix(0, 0).UTC() // whatever the clocks of the nodes say
	case overlap == 0:
		until = now.Add(-maxSkew).UTC().Truncate(time.Millisecond) // on nodes whose clocks are behind, too
	}
	kept := append(slices.Clone(c.Earlier), Earlier{c.Hash, until})
	ended := 0
	for i := range kept {
		if kept[i].Until.After(until) {
			kept[i].Until = until
		}
		if !kept[i].Until.After(now) {
			ended = i + 1 // none outlives the next, so these come first
		}
	}
	if len(kept)-ended > maxEarlier {
		return fmt.Errorf("%d replaced secrets still count: wait until one has ended, or rotate with no overlap to end them all", maxEarlier)
	}
	c.Hash, c.Earlier, c.Rotated = hash, slices.Clone(kept[max(0, ended-maxEnded):]), now.UTC().Truncate(time.Millisecond)
	return nil
}
