package store_test

import (
	"testing"
	"time"

	"example.org/carstate/internal/store"
)

// How much may a source have unfolded while a partition is folded at some speed?
func TestUnfolded(t *testing.T) {
	const batch, flood, other = 10_000, 1, 2
	for _, tt := range []struct {
		name  string
		speed int
		most  int // of the flood's samples that are unfolded at once
		least int // of the flood's samples that are accepted in 10 s
	}{
		{"fast", 200_000, 30_000, 1_800_000},
		{"usual", 100_000, 20_000, 900_000},
		{"slow", 20_000, 11_500, 180_000},
		{"stalled", 0, 1 << 30, 1_000_000}, // the source is not to blame
	} {
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		u := store.NewUnfolded(1, 0, func() time.Time { return now })
		var stored, folded, most, accepted int
		var seqs []int
		for step := range 10_000 {
			now = now.Add(time.Millisecond)
			for range 4 {
				if _, ok := u.Reserve(flood, batch); !ok {
					break
				}
				stored += batch
				seqs = append(seqs, stored)
				u.Store(0, uint64(len(seqs)), flood, batch)
				u.Release(flood, batch)
				accepted += batch
			}
			folded = min(stored, folded+tt.speed/1000)
			done := 0
			for done < len(seqs) && seqs[done] <= folded {
				done++
			}
			if done > 0 {
				u.Fold(0, uint64(done))
			}
			if step > 3000 {
				most = max(most, stored-folded)
			}
			if _, ok := u.Reserve(other, 0); !ok {
				t.Fatalf("%s: got no room for another source after %d ms, want some", tt.name, step)
			}
		}
		if most > tt.most || accepted < tt.least {
			t.Errorf("%s: %d samples unfolded at once, %d accepted; want at most %d, at least %d", tt.name, most, accepted,
				tt.most, tt.least)
		}
	}
}

// A source is not refused because its samples take a while to the node that folds them, also after
// folding was slow for a while.
func TestUnfolded_OnTheirWay(t *testing.T) {
	for _, tt := range []struct{ rate, delay int }{{10_000, 150}, {30_000, 100}, {100_000, 5}} { // in samples/s and ms
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		u := store.NewUnfolded(1, 100*time.Millisecond, func() time.Time { return now })
		var at []time.Time
		refused, folded, n := 0, 0, tt.rate/1000
		for step := 0; step < 20_000; step, now = step+1, now.Add(time.Millisecond) {
			if _, ok := u.Reserve(1, n); ok {
				at = append(at, now)
				u.Store(0, uint64(len(at)), 1, n)
				u.Release(1, n)
			} else if step < 2000 || step > 12_000 {
				refused++
			}
			slow := 2000 <= step && step < 6000
			if slow && step%10 == 0 && folded < len(at) {
				folded++
			}
			for !slow && folded < len(at) && now.Sub(at[folded]) >= time.Duration(tt.delay)*time.Millisecond {
				folded++
			}
			u.Fold(0, uint64(folded))
		}
		if refused > 0 {
			t.Errorf("%d samples a second, folded after %d ms: %d requests are refused, want none", tt.rate, tt.delay, refused)
		}
	}
}

// Batches that are folded at once make room for several, not for many.
func TestUnfolded_AloneAndFast(t *testing.T) {
	now, seq := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), uint64(0)
	u := store.NewUnfolded(1, 0, func() time.Time { return now })
	for range 200 {
		seq++
		u.Store(0, seq, 1, 1000)
		now = now.Add(2 * time.Millisecond)
		u.Fold(0, seq)
	}
	for _, most := range []int{3, 5} {
		for i := range 8 {
			if _, ok := u.Reserve(1, 10_000); ok != (i < most) {
				t.Errorf("batch %d at once: accepted %v, want only the first %d", i+1, ok, most)
			}
		}
		u.Release(1, most*10_000)
		for range 900 { // samples of one commit, so they show one pause
			u.Store(0, seq+1, 1, 1)
		}
		now = now.Add(time.Second)
		u.Fold(0, seq+1)
	}
}
