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

// rotate replaces the secret current by next. current counts for overlap more.
// A secret that an earlier rotation replaced keeps its end, but none outlives
// current: with no overlap at all, next is the only one that counts, which is
// what somebody wants whose secret has leaked. Of those that have ended, the last
// few are kept to be told apart from secrets that never were.
func rotate(current Hash, earlier []Earlier, next Hash, overlap time.Duration, now time.Time) (Hash, []Earlier, error) {
	if err := CheckOverlap(overlap); err != nil {
		return current, earlier, err
	}
	until := now.Add(overlap).UTC().Truncate(time.Millisecond)
	if overlap == 0 {
		until = until.Add(-maxSkew) // on nodes whose clocks are behind, too
	}
	kept := append(slices.Clone(earlier), Earlier{current, until})
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
		return current, earlier, fmt.Errorf("%d replaced secrets still count: wait until one has ended, or rotate with no overlap to end them all", maxEarlier)
	}
	kept = slices.Clone(kept[max(0, ended-maxEnded):])
	return next, kept, nil
}

// held is what a table keeps under a hash: whose secret it is, and until when it
// counts if it was replaced.
type held[T any] struct {
	by    T
	until time.Time // zero: it is the current one
}

// ended reports whether the secret was replaced and its time is over.
func (h *held[T]) ended(now time.Time) bool {
	return !h.until.IsZero() && !now.Before(h.until)
}

// secretsOf are all the secrets of a token or a source, those included that have
// ended: whoever still uses one is told that it was replaced.
func secretsOf[T any](by T, current Hash, earlier []Earlier) map[Hash]held[T] {
	all := map[Hash]held[T]{current: {by: by}}
	for _, e := range earlier {
		all[e.Hash] = held[T]{by, e.Until}
	}
	return all
}
