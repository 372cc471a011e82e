package matrix

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// What is measured: rounds of one question about each sort of vehicle. Of the
// questions, batch go out together, so that the time of an answer is not lost
// in that of the way there and back.
const (
	rounds = 6000
	batch  = 16
	// aim is how far apart the medians may be, in percent of an answer's time.
	aim = 3.0
	// told is what a defect must make of the medians' difference to be found, in
	// percent. That the bound is wider than the aim may just be a noisy machine.
	told = 10.0
)

// The sorts of vehicles that must not be told apart by a token that is granted
// only the first.
const (
	grantedSilent = iota
	forbiddenReporting
	forbiddenSilent
	sorts
)

// timing measures whether time tells a vehicle that is not granted from one that
// there is not.
func (w *world) timing(ctx context.Context) error {
	granted := make([]vehicle.ID, toTime/2)
	for i := range granted {
		granted[i] = vehicle.ID(w.silent[i].vid)
	}
	t, err := w.admin.IssueToken(ctx, access.TokenRequest{Developer: "Mallory", Operations: access.AllOperations, Vehicles: access.VehicleSet(granted...)})
	if err != nil {
		return err
	}
	c, err := dial(w.node.Address("query-addr"))
	if err != nil {
		return err
	}
	defer c.close()
	cars := [sorts][]*car{w.silent[:toTime/2], w.reporting[:toTime/2], w.silent[toTime/2:]}
	rng := rand.New(rand.NewPCG(w.a.Seed, 2000))
	var times [sorts][]float64 // microseconds a question; by round
	for round := range rounds {
		if ctx.Err() != nil {
			return nil
		}
		op := operation(rng.IntN(2))
		for _, sort := range rng.Perm(sorts) {
			took, err := c.batch(op, t.AccessToken, cars[sort], rng)
			if err != nil {
				return err
			}
			if round >= rounds/10 { // the first ones warm up
				times[sort] = append(times[sort], took)
			}
		}
	}
	base := median(times[grantedSilent])
	w.a.Figure("an answer about a vehicle that there is not, median", base, "µs")
	for _, x := range []struct {
		sort int
		name string
	}{{forbiddenReporting, "a vehicle that reports and is not granted"}, {forbiddenSilent, "one that is neither there nor granted"}} {
		difference, bound := paired(times[x.sort], times[grantedSilent])
		if w.a.Control != nil {
			difference = 100 * difference / base
			w.a.Aimed("the answer about "+x.name+" takes longer by (median)", round1(difference), "%", fmt.Sprintf("≤ %g %%", told), difference <= told)
			continue
		}
		w.a.Figure("the answer about "+x.name+" takes longer by (median)", round1(100*difference/base), "%")
		w.a.Aimed("the answer about "+x.name+" differs in time by at most (99 % confidence)", round1(100*bound/base), "%", fmt.Sprintf("≤ %g %%", aim), 100*bound/base <= aim)
	}
	return nil
}

// batch asks about some of the cars at once and returns the time of one answer.
func (w *wire) batch(op operation, secret string, cars []*car, rng *rand.Rand) (float64, error) {
	w.out = w.out[:0]
	for range batch {
		w.out = request(w.out, "GET", op, "access_token="+secret+"&vid="+cars[rng.IntN(len(cars))].vid, "")
	}
	buf := w.got.body[:cap(w.got.body)]
	if len(buf) < 64<<10 {
		buf = make([]byte, 64<<10)
		w.got.body = buf
	}
	if err := w.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := w.conn.Write(w.out); err != nil {
		return 0, err
	}
	for have, answers := 0, 0; answers < batch; {
		n, err := w.in.Read(buf[have:])
		if err != nil {
			return 0, err
		}
		// An end may lie across two reads.
		answers += bytes.Count(buf[max(0, have-2):have+n], []byte(`"}}`))
		if have += n; have == len(buf) {
			return 0, io.ErrShortBuffer
		}
	}
	return float64(time.Since(began).Nanoseconds()) / 1000 / batch, nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return math.NaN()
	}
	return s[len(s)/2]
}

// paired compares two series that were measured in turn. It returns the median
// of their differences, and how far from zero the median of all such differences
// is at most, with 99 % confidence. The bounds are those of the order
// statistics: nothing is assumed of how the times are spread, and a machine that
// was busy for a while was so for both.
func paired(a, b []float64) (difference, bound float64) {
	d := make([]float64, len(a))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	slices.Sort(d)
	n := float64(len(d))
	reach := 2.576 * math.Sqrt(n) / 2 // of the ranks around the median's
	low, high := int(n/2-reach), int(math.Ceil(n/2+reach))
	return d[len(d)/2], max(math.Abs(d[max(low, 0)]), math.Abs(d[min(high, len(d)-1)]))
}

func round1(v float64) float64 { return math.Round(v*10) / 10 }
