package node

import "testing"

func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 20 << 20: 100, 64 << 20: 100, 128 << 20: 50, 1 << 30: 30, 1 << 50: 30} {
		if got := garbagePercent(live); got != want {
			t.Errorf("with %d bytes in use the percentage is %d, want %d", live, got, want)
		}
	}
}
