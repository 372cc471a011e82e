package local

import (
	"testing"

	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB, c store.Config) store.Engine {
		t.Helper()
		e := mustOpen(t.Context(), t, Config{Config: c})
		return e
	})
}
