package node

import "testing"

// TestNothingIsTraced: without an endpoint there is no tracer, so nothing asks
// for spans.
func TestNothingIsTraced(t *testing.T) {
	tr, err := newTraces(t.Context(), new(Config))
	if err != nil || tr.tracer() != nil || tr.close(t.Context()) != nil {
		t.Errorf("%+v, %v", tr, err)
	}
}
