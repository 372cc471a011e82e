package cluster

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestDenialWithoutNames(t *testing.T) {
	for subject, want := range map[string]string{
		"state.3.SecretCar": "the NATS account lacks a right: Publish to state.…: grant what " +
			"deploy/nats/nats.conf does",
		"road.477e1c000": "the NATS account lacks a right: Publish to road.…: grant what " +
			"deploy/nats/nats.conf does",
		"$JS.API.DIRECT.GET.STATES": "the NATS account lacks a right: Publish to $JS.API.DIRECT.GET.STATES: grant " +
			"what deploy/nats/nats.conf does",
	} {
		d, ok := asDenial(fmt.Errorf(`%w: Permissions Violation for Publish to "%s"`, nats.ErrPermissionViolation,
			subject))
		if got := d.withoutNames().Error(); !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", subject, got, ok, want)
		}
	}
}
