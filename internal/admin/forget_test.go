package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/vehicle"
)

func TestForgetAndAllow(t *testing.T) {
	s := startOps(t, func(c *ops.Config) {
		c.State = func(context.Context, vehicle.ID) (vehicle.State, bool, error) { return vehicle.State{}, false, nil }
	})
	hash := s.store.Forgotten.Hash("V1").String()
	if _, err := s.Allow(t.Context(), "V1"); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("Allow of a vehicle that is not forgotten: got %v, want %v", err, access.ErrNotFound)
	}
	r, err := s.Forget(t.Context(), "V1")
	if err != nil || r.Vehicle != hash || r.Removed.States != 1 || !r.ForgottenAt.Equal(noon) {
		t.Errorf("got receipt %+v, %v; want vehicle %s at %v", r, err, hash, noon)
	}
	const forgotten = "this vehicle was forgotten at 2026-11-20 12:00:00Z: its data are deleted and its telemetry is " +
		"refused; once it is erased, `carstate forget VID --allow` accepts its telemetry again"
	if _, err := s.Vehicle(t.Context(), "V1"); err == nil || err.Error() != forgotten ||
		!errors.Is(err, access.ErrNotFound) {
		t.Errorf("the forgotten vehicle: got %v, want %s", err, forgotten)
	}
	early := fmt.Errorf("%w: try again after 2026-11-20 13:15Z", access.ErrNotErased)
	s.store.Fail("Allow", early)
	s.want(t, "POST", "/v1/vehicles/V1/allow", "", http.StatusConflict, early.Error())
	s.store.Fail("Allow", nil)
	if _, err := s.Allow(t.Context(), "V1"); err != nil {
		t.Errorf("Allow: got %v, want no error", err)
	}
	const unknown = "no vehicle with this vid has reported"
	if _, err := s.Vehicle(t.Context(), "V1"); err == nil || err.Error() != unknown {
		t.Errorf("the allowed vehicle: got %v, want %s", err, unknown)
	}
	if want, did := []string{"Audit intended", "Forget", "Audit intended", "Allow", "Audit failed", "Audit intended", "Allow"}, s.store.Did(); !slices.Equal(did,
		want) {
		t.Errorf("the store: got %q, want %q", did, want)
	}
	for i, action := range []string{"vehicle.forget", "vehicle.allow"} {
		if got, want := s.store.Events()[i],
			(access.Event{Time: noon, Actor: "admin", Admin: true, Action: action, Object: hash,
				Outcome: "intended"}); got != want {
			t.Errorf("audited %+v, want %+v", got, want)
		}
	}
	long := strings.Repeat("V", vehicle.MaxReportingID+1)
	for _, path := range []string{"V-1/forget", long + "/forget", long + "/allow"} {
		s.want(t, "POST", "/v1/vehicles/"+path, "", http.StatusBadRequest, "")
	}
	s.want(t, "GET", "/v1/vehicles/V1/forget", "", http.StatusMethodNotAllowed, "")
	s.store.Fail("Forget", errors.New("the disk of V1 is full"))
	if _, err := s.Forget(t.Context(), "V1"); err == nil || strings.Contains(err.Error(), "disk") {
		t.Errorf("Forget on a full disk: got %v, want an error without its cause", err)
	}
}

// The vehicle's clock is ahead.
func TestRelearn(t *testing.T) {
	state := vehicle.State{Time: signal.At(noon.Add(20 * time.Second))}
	var stored []vehicle.Sample
	s := startOps(t, func(c *ops.Config) {
		c.State = func(_ context.Context, id vehicle.ID) (vehicle.State, bool, error) { return state, id == "V1", nil }
		c.Append = func(_ context.Context, x []vehicle.Sample) error { stored = append(stored, x...); return nil }
	})
	r, err := s.Relearn(t.Context(), "V1")
	if want := state.Time + 1; err != nil || len(stored) != 1 || stored[0].Vehicle != "V1" || stored[0].Time != want ||
		r.VID != "V1" || !r.At.Equal(want.Time()) {
		t.Errorf("stored %+v, got %+v, %v; want one sample of V1 at %d", stored, r, err, want)
	}
	hash := s.store.Forgotten.Hash("V1").String()
	if e := s.store.Events(); len(e) != 1 || e[0].Action != "vehicle.relearn" || e[0].Object != hash {
		t.Errorf("the audit: got %+v, want the relearning of %s", e, hash)
	}
	if _, err := s.Relearn(t.Context(), "V2"); !errors.Is(err, access.ErrNotFound) || len(stored) != 1 {
		t.Errorf("a vehicle that never reported: got %v, want %v", err, access.ErrNotFound)
	}
}
