// Package onekey is the row in which one source's key is stolen and used to occupy the service.
package onekey

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/bench/report"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/mqtt"
	"example.org/carstate/torture/row"
)

var Row = row.Row{
	Name: "onekey", Counts: "stalled requests of one source", CI: 2100, // a source may have no more
	Run: run,
}

const (
	windows = 8
	// The best counts, because other load can only lengthen the delays.
	rounds  = 3
	thief   = "thief"
	senders = 48 // fewer would wait for their own answers
	rate    = 150
	patient = 5 * time.Second

	busyMillis = 250
	comeWithin = 5 * time.Second // how long a request may stall
)

type target struct {
	*nodeprocess.Node
	key    string
	driven [4]int64 // requests by fast sender; the next round goes on
}

func run(ctx context.Context, a *row.Attempt) {
	parts := row.Split(os.Getpid())
	row.Confine(os.Getpid(), &parts.One)
	// With few descriptors, the node would choose lower limits.
	t := &target{Node: must.Get(a.Start(ctx, "--ingest-connections", "4096", "--mqtt-connections", "2000",
		"--query-connections", "200"))}
	defer t.Kill()
	row.Confine(t.PID(), &parts.Others)
	t.key = must.Get(must.Get(t.AdminClient()).AddSource(ctx, access.Credential{Name: thief,
		Vehicles: access.AllVehicles(), Rate: access.NoRate})).Key
	p := newProbe(a, t, must.Get(t.AddSource(ctx, "other")), must.Get(t.IssueToken(ctx, "other")).AccessToken)
	p.measure(ctx, 2, "nothing")
	for _, f := range []*flood{
		{"stalled requests over HTTP/1.1", row.Flood{Count: a.Count, Within: comeWithin, Stall: t.overHTTP1}, false},
		{"stalled MQTT packets", row.Flood{Count: a.Count * 13 / 210, Within: comeWithin, Stall: t.overMQTT}, false},
		{"fast senders", row.Flood{Count: len(t.driven), Stall: t.sendFast}, true},
		{"senders of cheap bytes", row.Flood{Count: 16, Stall: t.sendCheap}, true},
	} {
		f.compare(ctx, a, t, p)
		must.Do(ctx.Err())
	}
	a.Offered(p.did.Of(sent))
	a.Acknowledged(p.did.Of(sent) - p.did.Of(failed))
	a.None(failed, p.did.Of(failed))
}

func (f *flood) compare(ctx context.Context, a *row.Attempt, t *target, p *probe) {
	var ratios, during []float64 // of the best round, by protocol
	atOnce := 0
	for range rounds {
		before := p.measure(ctx, windows, "nothing")
		f.Between = 500 * time.Millisecond
		stop := f.Start(ctx)
		median := row.Median(ctx, func() (int, error) { return f.Held(), nil })
		must.Do(nodeprocess.Until(ctx, 30*time.Second, func(context.Context) error {
			if n := f.Held(); n < f.Count*3/4 {
				return fmt.Errorf("of %d %s only %d are there", f.Count, f.name, n)
			}
			return nil
		}))
		under := p.measure(ctx, windows, f.name)
		held := median()
		stop()
		must.Do(ctx.Err())
		var now, times []float64
		for i := range before {
			now = append(now, row.Millis(under[i]))
			times = append(times, math.Round(100*float64(under[i])/float64(before[i]))/100)
		}
		a.Logf("%s, %d at once: p99 of others in ms %v, to before %v", f.name, held, now, times)
		if ratios == nil || slices.Max(times) < slices.Max(ratios) {
			ratios, during, atOnce = times, now, held
		}
		must.Get(t.AwaitMetrics(ctx, time.Minute, func(m nodeprocess.Metrics) bool {
			return m[`carstate_ingest_held_bytes{protocol="http"}`] == 0
		}))
		if p.did.Of(failed) > 0 || slices.Max(ratios) <= 2 || f.busy && slices.Max(during) <= busyMillis {
			break
		}
	}
	a.Figure(f.name+" at once, median", float64(atOnce), "")
	for i, protocol := range protocols {
		if f.busy {
			a.AtMost(f.name+": p99 of another source by "+protocol, during[i], "ms", max(busyMillis, 2*during[i]/ratios[i]))
			continue
		}
		a.Figure(f.name+": p99 of another source by "+protocol, during[i], "ms")
		a.AtMost(f.name+": p99 of another source by "+protocol+", to before", ratios[i], "×", 2)
	}
}

type flood struct {
	name string
	row.Flood
	busy bool // the flood takes the processor
}

func (t *target) overHTTP1(ctx context.Context, _ int, begun func()) error {
	request := row.Upload(t.key, row.NDJSON, 8_000_000) + "{"
	return row.Stall(ctx, t.Address(nodeprocess.Ingest), request, "", 4096, begun)
}

// Positions of many vehicles are expensive to fold.
func (t *target) sendFast(ctx context.Context, i int, begun func()) error {
	begun()
	for {
		var body []byte
		at, latitude := time.Now().Add(-100*24*time.Hour).UnixMilli()+t.driven[i]*4000, 45+math.Abs(float64(t.driven[i]%2000-1000))*.0009
		for k := range 8000 {
			body = fmt.Appendf(body, `{"vid":"Stolen%dX%d","time":%d,"signals":{"Vehicle.Speed":90,`+
				`"Vehicle.CurrentLocation.Latitude":%.4f,"Vehicle.CurrentLocation.Longitude":%d}}`+"\n", i, k, at, latitude, k%180)
		}
		status, _, err := t.Post(ctx, t.key, string(body))
		if err != nil {
			return err
		}
		if status == http.StatusAccepted {
			t.driven[i]++
		}
	}
}

func (t *target) sendCheap(ctx context.Context, _ int, begun func()) error {
	begun()
	c := &row.Conn{To: t.Address(nodeprocess.Ingest), Limit: patient}
	defer c.Close()
	for {
		_, _, err := c.Ask(ctx, row.Upload(t.key, row.NDJSON+"\r\nContent-Encoding: gzip", len(blanks))+blanks)
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
}

var blanks = func() string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	must.Get(z.Write(bytes.Repeat([]byte("\n"), 8<<20)))
	must.Do(z.Close())
	return b.String()
}()

func (t *target) overMQTT(ctx context.Context, i int, begun func()) error {
	login := mqtt.Login{Protocol: "MQTT", Version: 4, Flags: 2, KeepAlive: 60, ID: fmt.Sprint("stalled", i), User: thief,
		Key: t.key}
	return row.Stall(ctx, t.Address(nodeprocess.MQTT), string(append(login.Packet(), stalledPublish...)), "", 4096, begun)
}

var stalledPublish = mqtt.Publish(4, 2, 1, "vehicles/Stolen/telemetry", string(make([]byte, 1<<20-100)))[:40]

var protocols = []string{"HTTP", "MQTT", "HTTP to the answer"}

type probe struct {
	a       *row.Attempt
	senders [][]row.Send // by protocol; each with its own connection
	closers []func()
	did     row.Tally
}

const sent, failed = "samples of the other source", "samples of the other source that failed"

// A message of 10 KB needs more memory than is reserved for every connection.
func newProbe(a *row.Attempt, t *target, key, token string) *probe {
	p := &probe{a: a, senders: make([][]row.Send, len(protocols))}
	for i := range senders {
		sample := func(padding string) string {
			return fmt.Sprintf(`%s{"vid":"Car%d","time":%d,"signals":{"Vehicle.Speed":50}}`, padding, i, time.Now().UnixMilli())
		}
		h := &row.Conn{To: t.Address(nodeprocess.Ingest), Limit: patient}
		m, vid := &row.Conn{To: t.Address(nodeprocess.MQTT), Limit: patient}, fmt.Sprint("Car", i)
		login := mqtt.Login{Protocol: "MQTT", Version: 4, Flags: 2, KeepAlive: 60, ID: vid, User: "other", Key: key}
		p.senders[0] = append(p.senders[0], func(ctx context.Context) error {
			body := sample("")
			answer, text, err := h.Ask(ctx, row.Upload(key, "application/json", len(body))+body)
			if err == nil && answer.StatusCode != http.StatusAccepted {
				err = fmt.Errorf("HTTP %d %.200s", answer.StatusCode, text)
			}
			return err
		})
		padding := strings.Repeat(" \n", 5000)
		p.senders[1] = append(p.senders[1], func(ctx context.Context) error {
			message, want := mqtt.Publish(4, 2, 1, "vehicles/"+vid+"/telemetry", sample(padding)), "\x40\x02\x00\x01"
			if m.Open == nil {
				message, want = append(login.Packet(), message...), "\x20\x02\x00\x00"+want
			}
			return m.Exchange(ctx, string(message), func(in *bufio.Reader) error {
				got := make([]byte, len(want))
				if _, err := io.ReadFull(in, got); err != nil || string(got) != want {
					return fmt.Errorf("MQTT %x, %v", got, err)
				}
				return nil
			})
		})
		post, query := &row.Conn{To: h.To, Limit: patient}, &row.Conn{To: t.Address(nodeprocess.Query), Limit: patient}
		p.senders[2] = append(p.senders[2], func(ctx context.Context) error {
			vid := fmt.Sprintf("New%dX%d", i, time.Now().UnixNano())
			body := fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, vid, time.Now().UnixMilli())
			answer, text, err := post.Ask(ctx, row.Upload(key, "application/json", len(body))+body)
			for deadline := time.Now().Add(patient); err == nil; row.Pause(ctx, 5*time.Millisecond) {
				status := answer.StatusCode
				if status != http.StatusAccepted && status != http.StatusOK || time.Now().After(deadline) {
					return fmt.Errorf("HTTP %d %.200s", status, text)
				}
				answer, text, err = query.Ask(ctx, row.Question(nodeprocess.DrivingPath, token, vid))
				if strings.Contains(text, `"status":1`) {
					return nil
				}
			}
			return err
		})
		p.closers = append(p.closers, h.Close, m.Close, post.Close, query.Close)
	}
	return p
}

func (p *probe) measure(ctx context.Context, windows int, during string) (p99 []time.Duration) {
	p99 = make([]time.Duration, len(protocols))
	must.Together(ctx, len(p.senders), func(ctx context.Context, i int) {
		each := row.Measure(ctx, windows, rate, p.senders[i], func(err error) {
			p.did.Add(sent, 1)
			if err != nil && p.did.Add(failed, 1) <= 5 {
				p.a.Wrong("during %s of one source, another one's sample: %v", during, err)
			}
		})
		p99[i] = max(1, report.Quantile(each, 0.5))
	})
	for _, closeOne := range p.closers {
		closeOne()
	}
	return p99
}
