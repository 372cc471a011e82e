package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carstate/torture/row"
)

// talkers is how many connections are open at a time.
const talkers = 8

// refill is how long it takes until a token with a limit may make one call more.
const refill = time.Hour / limitedCalls

// limitedCalls are those that a token with a limit may make in an hour.
const limitedCalls = 3

// maxMessages is how many different messages all refusals together may have: they
// are fixed texts. One that repeated what was sent would have as many as requests.
const maxMessages = 60

// observed are the answers of a whole run: what no single one shows.
type observed struct {
	mu       sync.Mutex
	ids      map[string]bool // X-Request-Id
	messages map[string]bool
	statuses map[int]int
}

func newObserved() *observed {
	return &observed{ids: make(map[string]bool), messages: make(map[string]bool), statuses: make(map[int]int)}
}

// note takes in an answer and says what is wrong with it beside the others.
func (o *observed) note(a *answer) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses[a.status]++
	id := a.headers["x-request-id"]
	if o.ids[id] {
		return "two answers have one X-Request-Id"
	}
	o.ids[id] = true
	if a.status != 200 && a.body != "" && !o.messages[a.body] {
		o.messages[a.body] = true
		if len(o.messages) > maxMessages {
			return "the messages are no fixed texts: they repeat what was sent"
		}
	}
	return ""
}

// requests sends hostile requests to a query listener, and judges what comes back
// by the contract.
func requests(ctx context.Context, a *row.Attempt, c *contract, newWriter func(worker int, rng *rand.Rand) *writer, address string, total int) error {
	var (
		left    atomic.Int64
		resets  atomic.Int64
		all     = newObserved()
		workers sync.WaitGroup
	)
	left.Store(int64(total))
	began := time.Now()
	for worker := range talkers {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(a.Seed, uint64(worker)))
			w := newWriter(worker, rng)
			by := &caller{budgets: make(map[*token]*budget)}
			for n := 0; ctx.Err() == nil && left.Load() > 0; n++ {
				if n == 0 || by.spent() {
					by.address, by.refused = addressOf(worker, n), 0
				}
				stream, requests := w.conversation()
				x := talk(ctx, by.address, address, stream, rng)
				if ctx.Err() != nil {
					return
				}
				a.Offered(requests)
				wrong, answered := "", 0
				if x.err == nil {
					wrong, answered = c.compare(stream, x, by, all.note)
				} else {
					wrong = x.err.Error()
				}
				left.Add(int64(-answered))
				a.Acknowledged(answered)
				if wrong != "" {
					a.Wrong("conversation %d of talker %d: %s", n, worker, wrong)
				}
				if x.reset { // what was used up is not certain any more
					resets.Add(1)
					by.refused, by.since = maxRefused, time.Time{}
				}
				w.tokens = slices.DeleteFunc(w.tokens, func(t *token) bool {
					return t.calls > 0 && (x.reset || by.budgets[t] != nil && time.Since(by.budgets[t].since) > refill/2)
				})
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	took := time.Since(began)
	a.Figure("hostile requests", float64(total)/took.Seconds(), "1/s")
	a.Figure("connections that were cut off", float64(resets.Load()), "")
	a.Figure("different texts of refusals", float64(len(all.messages)), "")
	for _, status := range []int{200, 400, 401, 403, 404, 405, 414, 429, 431} {
		a.Figure(fmt.Sprintf("answers %d", status), float64(all.statuses[status]), "")
		if total >= 10_000 && all.statuses[status] == 0 {
			return fmt.Errorf("no request was answered with %d: the generator does not reach it", status)
		}
	}
	return nil
}

// spent reports whether the caller should go by another address: refusals are
// counted for a minute, and nobody waits for it to end.
func (by *caller) spent() bool {
	return by.refused > maxRefused+8 || by.refused > 0 && time.Since(by.since) > 40*time.Second
}

// addressOf is a talker's address of this machine, a new one for each n.
func addressOf(worker, n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 16+worker+talkers*(n/62500%20), n/250%250, 1+n%250)
}

// readDocument reads a page of the documentation as a browser would, and as one
// that wants it compressed.
func readDocument(url string) (d document, err error) {
	for _, to := range []struct {
		encoding string
		text     *string
	}{{"identity", &d.plain}, {"gzip", &d.gzipped}} {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return d, err
		}
		req.Header.Set("Accept-Encoding", to.encoding)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return d, err
		}
		text, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return d, err
		}
		if resp.StatusCode != http.StatusOK {
			return d, fmt.Errorf("the documentation at %s gets %d", url, resp.StatusCode)
		}
		*to.text = string(text)
	}
	return d, nil
}
