package fleet_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/fleet"
	"example.org/carstate/internal/vehicle"
)

// A known vehicle is never refused, even before its first state has arrived.
func TestAdmitKeepsTheBound(t *testing.T) {
	table := fleet.New()
	table.Put("Before", answer(noon))
	if !table.Admit("Anybody") {
		t.Error("Admit without a bound: got false, want true")
	}
	table.Bound(3)
	for _, c := range []struct {
		id   vehicle.ID
		want bool
	}{{"Before", true}, {"A", true}, {"A", true}, {"B", true}, {"C", false}, {"C", false}, {"A", true}, {"Before", true}} {
		if got := table.Admit(c.id); got != c.want {
			t.Errorf("Admit(%s): got %t, want %t", c.id, got, c.want)
		}
	}
	table.Put("A", answer(noon))
	table.Put("B", answer(noon))
	if table.Admit("C") || !table.Admit("A") || !table.Admit("B") {
		t.Error("Admit of C, A, B: got it counted twice, or not at all; want false, true, true")
	}
	table.Delete("A")
	if !table.Admit("C") || table.Admit("A") {
		t.Error("Admit of C, A after A was forgotten: got another answer, want true, false")
	}
	table.Delete("C") // before its first state has arrived
	if !table.Admit("A") {
		t.Error("Admit of A after C was forgotten: got false, want true")
	}
	table.Bound(1)
	if !table.Admit("Before") || !table.Admit("B") || table.Admit("D") {
		t.Error("Admit of Before, B, D with a lower bound: got another answer, want true, true, false")
	}
	table.Expire(noon.Add(24 * time.Hour))
	if table.Len() != 0 {
		t.Errorf("after all expired: got %d vehicles, want 0", table.Len())
	}
}

func TestAdmitOfManyAtOnce(t *testing.T) {
	const most, tried = 1000, 3000
	table := fleet.New()
	table.Bound(most)
	var admitted atomic.Int64
	var working sync.WaitGroup
	for w := range 4 {
		working.Go(func() {
			for i := range tried {
				id := vehicle.ID(fmt.Sprintf("V%d", (i*7+w*11)%tried))
				if table.Admit(id) {
					table.Put(id, answer(noon))
					admitted.Add(1)
				}
			}
		})
	}
	working.Wait()
	if table.Len() != most {
		t.Errorf("got %d vehicles, want the limit of %d", table.Len(), most)
	}
	table.Expire(noon.Add(24 * time.Hour))
	for i := range tried {
		if got := table.Admit(vehicle.ID(fmt.Sprintf("W%d", i))); got != (i < most) {
			t.Fatalf("new vehicle number %d in an empty table: admitted %t, want %t", i+1, got, i < most)
		}
	}
}
