package cluster

import (
	"context"
	"strings"
	"testing"

	"example.org/carstate/internal/store/codec"
)

func TestLast_ErrorNamesNoVehicle(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Last(ended, codec.Tokens, "tokenset.SECRETVID.1")
	if err == nil || strings.Contains(err.Error(), "SECRETVID") || !strings.Contains(err.Error(), codec.Tokens) {
		t.Errorf("got the error %q, want one that names TOKENS and no vehicle", err)
	}
}
