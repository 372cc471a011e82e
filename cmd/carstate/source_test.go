package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestStrictSource checks that a sample with a misspelt signal is refused from a strict source, and
// accepted from another.
func TestStrictSource(t *testing.T) {
	p := start(t, t.TempDir())
	strict := strings.TrimSpace(p.carstate(t, "source", "add", "strict", "--vehicles", "all", "--strict",
		"--expires", "90d"))
	misspelt := fmt.Sprintf(`{"vid":"V1","time":%d,"signals":{"Vehicle.Speed":1,"Vehicle.Sped":2}}`,
		time.Now().UnixMilli())
	for key, wants := range map[string]int{strict: 0, p.addSource(t, "lenient"): 1} {
		if n, err := postLines(p, key, misspelt); n != wants {
			t.Errorf("%d accepted, want %d (%v)", n, wants, err)
		}
	}
	for name, wants := range map[string][]string{
		"strict":  {"unknown signals  a sample that has one, or an unused value, is refused\n", "  unknown_signal 1\n"},
		"lenient": {"unknown signals  ignored\n", "ignored signals  1\n"},
	} {
		shown := p.carstate(t, "source", "show", name)
		if strings.Contains(shown, "expires          never") == (name == "strict") {
			t.Errorf("wrong expiry of %s:\n%s", name, shown)
		}
		for _, want := range wants {
			if !strings.Contains(shown, want) {
				t.Errorf("%q is missing in\n%s", want, shown)
			}
		}
	}
}
