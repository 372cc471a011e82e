package storetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

// Recent returns all samples of the vehicle and no others, in order of event time, although they
// were stored newest first.
func recentOfOne(t *testing.T, e store.Engine) {
	began := time.Now()
	for i := int64(9); i >= 0; i-- {
		batch := []vehicle.Sample{
			sample("car1", 1000+i, float64(i)), sample("car11", 1000+i, 99), sample("other", 1000+i, 99),
		}
		testkit.NoError(t, e.Append(testkit.Context(t), batch))
	}
	r, err := e.Recent(testkit.Context(t), "car1", 1000)
	testkit.NoError(t, err)
	if len(r.Samples) != 10 || r.Since.After(began) || !r.All {
		t.Fatalf("got %d samples since %s (asked at %s), all: %t; want 10 and all", len(r.Samples), r.Since, began, r.All)
	}
	for i, x := range r.Samples {
		if v, _ := x.Value(signal.Speed); x.Vehicle != "car1" || int64(x.Time) != 1000+int64(i) || v != float32(i) {
			t.Errorf("sample %d: got %+v, want speed %d of car1 at %d", i, x, i, 1000+i)
		}
	}
	if r, err := e.Recent(testkit.Context(t), "nobody", 1000); err != nil || len(r.Samples) != 0 || !r.All {
		t.Errorf("a vehicle that never reported: got %+v, error %v; want no samples", r, err)
	}
}

// Recent finds samples that were stored an hour ago.
func recentLooksBack(t *testing.T, open Open) {
	var later atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	e := opened(t, open, store.Config{DataDir: t.TempDir(), Now: now})
	for i := range int64(3) {
		testkit.NoError(t, e.Append(testkit.Context(t), []vehicle.Sample{sample("car1", 1000+i, 1)}))
	}
	later.Store(int64(time.Hour))
	r, err := e.Recent(testkit.Context(t), "car1", 1000)
	if err != nil || len(r.Samples) != 3 || !r.All {
		t.Errorf("an hour later: got %+v, error %v; want 3 samples and all", r, err)
	}
}

// If its context has ended, Recent returns no error, and does not claim to be complete.
func recentEndsInTime(t *testing.T, e store.Engine) {
	testkit.NoError(t, e.Append(testkit.Context(t), []vehicle.Sample{sample("car1", 1000, 1)}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := e.Recent(ctx, "car1", 1000); err != nil || r.All || len(r.Samples) != 0 || r.Since.IsZero() {
		t.Errorf("after the context ended: got %+v, error %v; want no samples", r, err)
	}
}
