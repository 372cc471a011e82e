package cluster

import "testing"

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
		c := Config{URLs: urls}
		if got := c.LoginInClear(); got != want {
			t.Errorf("%s: got %v, want %v", urls, got, want)
		}
	}
	c := Config{URLs: "nats://a", CredsFile: "file"}
	if !c.LoginInClear() {
		t.Error("credentials for a server without TLS are not reported")
	}
	if c.URLs = ""; c.LoginInClear() {
		t.Error("without URLs, a login is reported")
	}
}
