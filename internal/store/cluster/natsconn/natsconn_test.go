package natsconn

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestLoginInClear(t *testing.T) {
	for urls, want := range map[string]bool{
		"":                                   false,
		"nats://me:pw@127.0.0.1:4222":        false,
		"nats://me:pw@localhost,[::1]:4222":  false,
		"tls://me:pw@a:4222,tls://me:pw@b":   false,
		"nats://a:4222":                      false,
		"nats://me:pw@a:4222":                true,
		"me:pw@a":                            true,
		"tls://me:pw@a:4222, nats://token@b": true,
		"nats://me:p%zz@a":                   false,
	} {
		if got := LoginInClear(urls, ""); got != want {
			t.Errorf("%s: got %v, want %v", urls, got, want)
		}
	}
	if !LoginInClear("nats://a", "file") {
		t.Error("LoginInClear without TLS: got false, want true")
	}
	if LoginInClear("", "file") {
		t.Error("LoginInClear without URLs: got true, want false")
	}
}

func TestDenialWithoutNames(t *testing.T) {
	for subject, want := range map[string]string{
		"state.3.SecretCar": "the NATS account lacks a right: Publish to state.…: grant what " +
			"deploy/nats/nats.conf does",
		"road.477e1c000": "the NATS account lacks a right: Publish to road.…: grant what " +
			"deploy/nats/nats.conf does",
		"$JS.API.DIRECT.GET.STATES": "the NATS account lacks a right: Publish to $JS.API.DIRECT.GET.STATES: grant " +
			"what deploy/nats/nats.conf does",
	} {
		d, ok := AsDenial(fmt.Errorf(`%w: Permissions Violation for Publish to "%s"`, nats.ErrPermissionViolation,
			subject))
		if got := d.withoutNames().Error(); !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", subject, got, ok, want)
		}
	}
}

func TestGreatestServer(t *testing.T) {
	if greatestServer != server.VERSION {
		t.Errorf("the tests' nats-server: got %s, want greatestServer, %s: run make torture before changing it",
			server.VERSION, greatestServer)
	}
}
