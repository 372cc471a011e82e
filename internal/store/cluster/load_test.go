package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestAnswerWithAGap checks that an answer is not accepted as complete if a part was lost, because
// the connection was cut during the answer. The test itself sends the answers, because no server
// loses a part on request.
func TestAnswerWithAGap(t *testing.T) {
	t.Parallel()
	e := open(t, Config{})
	sequences := []uint64{3, 4, 9, 17} // sequences of the records, in the order in which they arrive
	for name, c := range map[string]struct {
		lost []int
		want error
	}{
		"nothing":   {nil, nil},
		"the first": {[]int{0}, errGap},
		"one":       {[]int{2}, errGap},
		"the last":  {[]int{3}, errGap},
		"the rest":  {[]int{1, 2, 3}, errGap},
		"all":       {[]int{0, 1, 2, 3}, errGap},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(m *nats.Msg) {
				before := uint64(0)
				send := func(header nats.Header) {
					header["Nats-Last-Sequence"] = []string{strconv.FormatUint(before, 10)}
					if err := m.RespondMsg(&nats.Msg{Header: header}); err != nil {
						t.Error(err)
					}
				}
				for i, seq := range sequences {
					if !slices.Contains(c.lost, i) {
						send(nats.Header{"Nats-Sequence": {strconv.FormatUint(seq, 10)}, "Nats-Subject": {"x"}})
					}
					before = seq
				}
				send(nats.Header{"Status": {"204"}, "Nats-Num-Pending": {"0"}, "Nats-UpTo-Sequence": {"17"}})
			}
			sub, err := e.nc.Subscribe("$JS.API.DIRECT.GET.FAKE", answer)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			records, _, err := e.directGet(ctx, "FAKE", page{Seq: 1, Batch: 9})
			if !errors.Is(err, c.want) || c.want == nil && (err != nil || len(records) != len(sequences)) {
				t.Errorf("%d records, %v; want %v", len(records), err, c.want)
			}
		})
	}
}
