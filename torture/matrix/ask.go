package matrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"carstate/internal/access"
)

// askers is how many connections ask at once.
const askers = 8

// enough is how many wrong answers are told before it is no use to go on.
const enough = 50

// canon keeps what an answer about nothing known looked like first: every later
// one must be the same to the byte.
type canon struct {
	mu    sync.Mutex
	first map[string]string
}

// differs reports whether an answer differs from the first of its sort.
func (c *canon) differs(sort, plain string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first, ok := c.first[sort]; ok {
		return first != plain
	}
	c.first[sort] = plain
	return false
}

// askAll asks count triples over several connections while tokens are changed
// and vehicles forgotten.
func (w *world) askAll(ctx context.Context, count int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make(chan error, 1)
	changing, stopChanging := context.WithCancel(ctx)
	defer stopChanging()
	go func() { changes <- w.change(changing) }()

	var left, wrong, from atomic.Int64
	left.Store(int64(count))
	same := canon{first: make(map[string]string)}
	errs := make(chan error, askers)
	began := time.Now()
	for n := range askers {
		go func() {
			rng := rand.New(rand.NewPCG(w.a.Seed, uint64(n+1)))
			c, err := dial(w.node.Address("query-addr"))
			if err != nil {
				errs <- err
				return
			}
			defer c.close()
			for left.Add(-1) >= 0 && ctx.Err() == nil && wrong.Load() < enough {
				finding, err := w.triple(rng, c, from.Add(1), &same)
				if err != nil {
					errs <- fmt.Errorf("a connection broke: %w", err)
					return
				}
				if finding != "" {
					wrong.Add(1)
					w.a.Wrong("%s", finding)
				}
			}
			errs <- nil
		}()
	}
	var err error
	for range askers {
		err = errors.Join(err, <-errs)
	}
	took := time.Since(began)
	stopChanging()
	err = errors.Join(err, <-changes)
	if ctx.Err() == nil && wrong.Load() == 0 {
		w.a.Figure("triples a second, with the changes meanwhile", float64(count)/took.Seconds(), "/s")
	}
	return err
}

// triple asks one question and judges the answer.
func (w *world) triple(rng *rand.Rand, c *wire, number int64, same *canon) (finding string, err error) {
	q := asked{op: operation(rng.IntN(2)), car: w.cars[rng.IntN(len(w.cars))]}
	sort := "a stranger's token"
	switch pick := rng.IntN(20); {
	case pick == 0:
		q.secret = w.strangers[rng.IntN(len(w.strangers))]
	case pick == 1: // of the right form, and new each time
		q.secret, _ = access.NewSecret(access.TokenKind)
	default:
		q.from = w.anyHolder(rng)
		q.secret = q.from.secret(rng.IntN(1 << 20))
		sort = "a token"
		if q.from.sandbox {
			sort = "a sandbox token"
			if pick < 16 { // else nearly all cars would be unknown to it
				q.car = w.sandboxed[rng.IntN(len(w.sandboxed))]
			}
		}
	}
	method := "GET"
	if rng.IntN(10) == 0 {
		method = "HEAD"
	}
	query := "access_token=" + q.secret + "&vid=" + q.car.vid
	if rng.IntN(2) == 0 {
		query = "vid=" + q.car.vid + "&access_token=" + q.secret
	}
	// Each is another caller, or one that guesses would be told to wait.
	caller := fmt.Sprintf("10.%d.%d.%d", number>>16&255, number>>8&255, number&255)

	if q.from != nil {
		q.first, _ = q.from.places()
	}
	q.forgotten = q.car.forgotten.Load()
	q.sent = time.Now()
	a, err := c.ask(method, q.op, query, caller)
	if err != nil {
		return "", err
	}
	q.received = time.Now()
	if q.from != nil {
		_, q.last = q.from.places()
	}
	q.forgetting = q.car.forgetting.Load()
	w.a.Offered(1)
	if a.status == 200 {
		w.a.Acknowledged(1)
	}
	if why := q.judge(a, method == "HEAD"); why != "" {
		return fmt.Sprintf("%s, %s, a vehicle that is %s: %s", sort, operations[q.op].name, w.describe(&q), why), nil
	}
	// The reserved vehicles' names have other lengths.
	if a.header("Carstate-Reason") == "unknown" && len(q.car.vid) == len(w.cars[0].vid) &&
		same.differs(method+operations[q.op].name, a.plain(q.car.vid)) {
		return fmt.Sprintf("%s, %s: an answer about a vehicle that is %s differs from one about another that is unknown", sort, operations[q.op].name, w.describe(&q)), nil
	}
	return "", nil
}

// describe says what a vehicle is to a token, without names.
func (w *world) describe(q *asked) string {
	granted := "not granted"
	if q.from == nil {
		granted = "nothing to it"
	} else if g := q.from.life(q.last); g.all || g.vids[q.car.vid] {
		granted = "granted"
	}
	v := q.car.verdicts[q.op]
	switch {
	case q.forgetting:
		return granted + " and forgotten"
	case v.value != "":
		return granted + " and known"
	}
	return granted + " and " + v.reason
}
