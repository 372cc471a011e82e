package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/vehicle"
)

// A strip is the chart of a vehicle's last hour in a list. The browser requests the strips of visible
// rows, two at a time. Of all browsers, one strip is made at a time, so they use one processor.
const (
	stripTime  = 500 * time.Millisecond // of one scan
	stripWait  = 10 * time.Second       // in the queue
	stripWidth = 120.0                  // of an hour, in SVG units
)

type stripView struct {
	Bands []band
	Text  string    // the same in words
	From  time.Time // older samples were not read; zero: the strip covers the hour
}

func (c *Console) hour(w http.ResponseWriter, r *http.Request, _ *session, id vehicle.ID) {
	html, err := c.strip(r.Context(), id)
	if err != nil {
		c.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(html))
}

// strip returns "" for a vehicle without a state. After stripWait, it only says that the samples
// were not read.
func (c *Console) strip(ctx context.Context, id vehicle.ID) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, stripWait)
	defer cancel()
	select {
	case c.strips <- struct{}{}:
		defer func() { <-c.strips }()
	case <-waiting.Done():
		return c.render("vehicles", "strip", stripView{
			Text: "not read, because others are being read: load the page again",
		})
	}
	s, ok, err := c.Ops.State(ctx, id) // the state may not be stored yet
	if err != nil || !ok {
		return "", err
	}
	scanning, cancel := context.WithTimeout(ctx, stripTime)
	defer cancel()
	now := c.Now()
	return c.render("vehicles", "strip", c.scan(scanning, id, &s).lastHour(now))
}

func (k *curve) lastHour(now time.Time) (v stripView) {
	past, begin := k.view(), now.Add(-time.Hour)
	var words []string
	for _, b := range past.Bands {
		if b.Till.Before(begin) {
			continue
		}
		if b.From.Before(begin) {
			b.From = begin
		}
		x := func(t time.Time) float64 { return stripWidth * t.Sub(begin).Hours() }
		b.X = x(b.From)
		b.Width = max(x(b.Till)-b.X, 1) // to be visible
		v.Bands = append(v.Bands, b)
		words = append(words, fmt.Sprintf("%s %s to %s", strings.ToLower(classNames[b.Class]), b.From.UTC().Format("15:04"),
			b.Till.UTC().Format("15:04")))
	}
	if k.Since.After(begin.Add(time.Minute)) { // a missing minute is not mentioned
		v.From = k.Since
	}
	const most = 6 // the page of the vehicle shows the others
	slices.Reverse(words)
	switch v.Text = strings.Join(words[:min(most, len(words))], ", "); {
	case k.Damaged:
		v.Text = "a part of the retained telemetry is damaged"
	case k.Failed:
		v.Text = "the retained telemetry could not be read"
	case len(words) > most:
		v.Text += fmt.Sprintf(" UTC, and %d before", len(words)-most)
	case len(words) > 0:
		v.Text += " UTC"
	case len(k.speeds) > 0 && !k.speeds[len(k.speeds)-1].at.Time().Before(begin):
		v.Text = "one reading"
	case v.From.IsZero():
		v.Text = "no reading"
	default:
		v.Text = "no reading was found"
	}
	return v
}
