package main_test

import (
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// By HTTP and MQTT, today and yesterday: each car's last reading has its time, and the log no
// position.
func TestReplayFleet(t *testing.T) {
	t.Parallel()
	fleet, _ := fleetFiles(t)
	dir := t.TempDir()
	p := start(t, dir, "--log-level", "debug")
	began := signal.At(time.Now())
	const said = "6000 samples of 20 vehicles acknowledged by "
	for _, args := range [][]string{
		{"--prefix", "TODAY"},
		{"--prefix", "BEFORE", "--ago", "24h"},
		{"--mqtt-addr", p.Address(nodeprocess.MQTT)},
	} {
		if out := p.carstate(t, append([]string{"replay", "--fleet", fleet}, args...)...); !strings.HasPrefix(out, said) {
			t.Errorf("%v: got %s, want %s", args, out, said)
		}
	}
	ended := signal.At(time.Now())
	testkit.Await(t, "every sample is folded", func() bool {
		return strings.Contains(p.metrics(t), "\ncarstate_samples_folded_total 18000\n")
	})
	p.stop(t)
	if strings.Contains(p.log.String(), "11.3299") {
		t.Error("the log: got a position, want none")
	}

	states := storedStates(t, dir)
	if len(states) != 60 {
		t.Errorf("the stored states: got %d, want 60", len(states))
	}
	for _, prefix := range []string{"TODAY", "BEFORE", ""} {
		s, ok := states[vehicle.ID(prefix+"CAR05")]
		if !ok {
			t.Errorf("%sCAR05: got no state, want one", prefix)
			continue
		}
		from, to := began, ended
		if prefix == "BEFORE" {
			from, to = from.Add(-24*time.Hour), to.Add(-24*time.Hour)
		}
		if s.Time < from || s.Time > to {
			t.Errorf("%sCAR05: got its last time %s, want %s to %s", prefix, s.Time.Time(), from.Time(), to.Time())
		}
		for g, want := range map[signal.Signal]float32{signal.Speed: 54, signal.CurrentLatitude: 44.505,
			signal.CurrentLongitude: 11.3299} {
			if got := s.Latest[g]; got.Value != want || got.Time != s.Time {
				t.Errorf("%sCAR05: %s: got %+v, want %g at %d", prefix, g, got, want, s.Time)
			}
		}
	}
}
