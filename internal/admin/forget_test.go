package admin_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/vehicle"
)

// forgetting is a store that forgets F and notes who asked.
type forgetting struct {
	calls []string
	err   error
}

func (f *forgetting) config(c *admin.Config) {
	do := func(what string) func(context.Context, vehicle.ID, string) (admin.ForgetReceipt, error) {
		return func(_ context.Context, id vehicle.ID, by string) (admin.ForgetReceipt, error) {
			f.calls = append(f.calls, what+" "+string(id)+" by "+by)
			return admin.ForgetReceipt{Format: access.ReceiptFormat, Vehicle: "ab12", ForgottenAt: noon, Removed: access.RemovedCount{States: 1}}, f.err
		}
	}
	c.Forget, c.Allow = do("forget"), do("allow")
	c.Forgotten = func(id vehicle.ID) bool { return id == "F" }
}

func TestForgetAndAllow(t *testing.T) {
	store := new(forgetting)
	s := start(t, store.config)
	r, err := s.Forget(t.Context(), "V1")
	if err != nil || r.Vehicle != "ab12" || r.Removed.States != 1 || !r.ForgottenAt.Equal(noon) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Allow(t.Context(), "V1"); err != nil {
		t.Error(err)
	}
	for path, status := range map[string]int{
		"/v1/vehicles/V-1/forget": http.StatusBadRequest,
		"/v1/vehicles/" + strings.Repeat("V", vehicle.MaxReportingID+1) + "/forget": http.StatusBadRequest,
	} {
		if a := s.do(t, "POST", path, ""); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.do(t, "GET", "/v1/vehicles/V1/forget", ""); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", a.status)
	}
	if want := []string{"forget V1 by admin", "allow V1 by admin"}; !slices.Equal(store.calls, want) {
		t.Errorf("asked for %q, want %q", store.calls, want)
	}
	store.err = errors.New("the disk of V1 is full")
	if _, err := s.Forget(t.Context(), "V1"); err == nil || strings.Contains(err.Error(), "disk") {
		t.Errorf("a failure is told as %v", err)
	}
}

// TestForgottenIsGrantedToNobody: its name would be written down again.
func TestForgottenIsGrantedToNobody(t *testing.T) {
	s := start(t, new(forgetting).config)
	tok := s.issue(t)
	calls := map[string]func() error{
		"issue": func() error {
			_, err := s.IssueToken(t.Context(), access.TokenRequest{Developer: "Bo", Operations: access.AllOperations, Vehicles: access.VehicleSet("A", "F")})
			return err
		},
		"grant": func() error {
			_, err := s.GrantToken(t.Context(), tok.ID, []vehicle.ID{"A", "F"}, nil)
			return err
		},
		"source": func() error {
			_, err := s.AddSource(t.Context(), "gateway", access.VehicleSet("A", "F"), time.Time{})
			return err
		},
	}
	for name, call := range calls {
		err := call()
		if err == nil || !strings.Contains(err.Error(), "vehicle 2 of the list was forgotten") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.GrantToken(t.Context(), tok.ID, nil, []vehicle.ID{"F"}); err != nil {
		t.Errorf("taking it away: %v", err)
	}
}
