package derive

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

var members = rapid.SliceOfNDistinct(rapid.StringMatching("[A-Z0-9]{16}"), 0, 12, rapid.ID[string])

// If a member joins, only it gets partitions, and few. The order of the members does not matter. So
// if a member leaves, only its own partitions move.
func TestOwnerOf_MovesFewPartitions(t *testing.T) {
	const partitions = 64
	rapid.Check(t, func(t *rapid.T) {
		few := members.Draw(t, "members")
		more := append(slices.Clone(few), rapid.StringMatching("[a-z]{16}").Draw(t, "comer"))
		comer := more[len(few)]
		more = rapid.Permutation(more).Draw(t, "order")
		moved := 0
		for p := range partitions {
			before, after := ownerOf(p, few), ownerOf(p, more)
			if before != after {
				moved++
				if after != comer {
					t.Fatalf("partition %d moved from %q to %q when %q joined", p, before, after, comer)
				}
			}
			if len(few) == 0 != (before == "") || before != "" && !slices.Contains(few, before) {
				t.Fatalf("partition %d: got owner %q, want one of %q", p, before, few)
			}
		}
		if fair := partitions / len(more); moved > 3*fair+16 {
			t.Fatalf("%d of %d partitions moved to one of %d members", moved, partitions, len(more))
		}
	})
}

// On average, the largest share is at most 1.3 × 16 partitions, as docs/scale.md says.
func TestOwnerOf_SixteenPartitionsEach(t *testing.T) {
	const nodes, partitions, draws = 4, 16 * 4, 2000
	rnd := rand.New(rand.NewPCG(1, 2))
	busiest := 0
	for range draws {
		var names []string
		for range nodes {
			names = append(names, strconv.FormatUint(rnd.Uint64(), 36))
		}
		has := make(map[string]int)
		for p := range partitions {
			has[ownerOf(p, names)]++
		}
		if len(has) < nodes {
			t.Errorf("%q: only %d have a partition", names, len(has))
		}
		busiest += slices.Max(slices.Collect(maps.Values(has)))
	}
	if share := float64(busiest) / draws / 16; share > 1.3 {
		t.Errorf("the busiest has %.2f × its share on average", share)
	}
}

// Nodes of different releases must agree.
func TestOwnerOf_Pinned(t *testing.T) {
	three := []string{"AAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCC"}
	got := ""
	for p := range 64 {
		got += ownerOf(p, three)[:1]
	}
	const want = "ABABABCACABBCCBBBCAABABCCAAABAAACBBBACBCCCABABCABCBACCCBCBAAACCA"
	if got != want {
		t.Errorf("got owners\n%s, want\n%s", got, want)
	}
}
