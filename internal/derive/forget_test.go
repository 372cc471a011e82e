package derive

import (
	"testing"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/vehicle"
)

// TestForgottenWhileFolding forgets a vehicle that keeps reporting, allows it, and forgets it
// again, while samples are folded. None of its old data may come back. Each time that it is
// allowed, its state must begin without earlier data. Another vehicle must lose no sample.
func TestForgottenWhileFolding(t *testing.T) {
	w := newWorld(t)
	e := w.Engine
	k, _ := storetest.RunKeeper(t, e, store.Config{})
	tab := follow(t, e)
	defer start(t, w.deriver(newSpy()))()

	const gone, other, rounds = vehicle.ID("Gone"), vehicle.ID("Other"), 6
	var now int64 = 1_000_000
	var want vehicle.State // state of the other vehicle
	send := func(n int) {
		for range n {
			now += 100
			x := storetest.Speed(other, now, 50)
			want = vehicle.Observe(want, x)
			if err := e.Append(t.Context(), []vehicle.Sample{x, storetest.Speed(gone, now, 50)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range rounds {
		send(30)
		forgotten := make(chan error, 1)
		go func() {
			_, err := k.Forget(t.Context(), gone)
			forgotten <- err
		}()
		send(30) // some of these samples may be stored before the tombstone
		if err := <-forgotten; err != nil {
			t.Fatal(err)
		}
		tab.mu.Lock()
		if _, ok := tab.states[gone]; ok {
			t.Error("the table still has the vehicle when Forget returns")
		}
		tab.mu.Unlock()
		send(10)
		if got := tab.wait(t, 1, vehicle.UnixMilli(now)); got[other] != want {
			t.Errorf("the other vehicle: got %+v, want %+v", got[other], want)
		} else if _, ok := got[gone]; ok {
			t.Error("waiting samples brought the vehicle back")
		}
		if _, ok, err := store.State(t.Context(), e, gone); ok || err != nil {
			t.Errorf("the forgotten vehicle has a state, or error %v", err)
		}
		if _, err := k.Allow(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		now += 100
		fresh := storetest.Speed(gone, now, 7)
		if err := e.Append(t.Context(), []vehicle.Sample{fresh}); err != nil {
			t.Fatal(err)
		}
		if got := tab.wait(t, 1, vehicle.UnixMilli(now)); got[gone] != vehicle.Observe(vehicle.State{}, fresh) {
			t.Errorf("after Allow: got %+v, want a state without a past", got[gone])
		}
	}
}
