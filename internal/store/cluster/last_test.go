package cluster

import (
	"context"
	"strings"
	"testing"

	"example.org/carstate/internal/store/codec"
)

// TestLast_ErrorNamesNoVehicle checks that if a read fails, the error does not contain the vid,
// which is part of a state's subject.
func TestLast_ErrorNamesNoVehicle(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Last(ended, codec.States, codec.StateSubject(0, "SECRETVID"))
	if err == nil || strings.Contains(err.Error(), "SECRETVID") || !strings.Contains(err.Error(), codec.States) {
		t.Errorf("got the error %q, want one that names STATES and no vehicle", err)
	}
}
