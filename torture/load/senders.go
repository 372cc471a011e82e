package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"carstate/internal/nodeprocess"
)

// post sends telemetry by HTTP until ctx ends.
func (l *Load) post(ctx context.Context, n *nodeprocess.Node, f *fleet) {
	for ctx.Err() == nil {
		samples := f.batch()
		if ok, err := l.postOne(ctx, n, samples); err != nil {
			l.wrong("%v", err)
		} else if ok {
			continue
		}
		if !rest(ctx) {
			return
		}
	}
}

// postOne sends samples and reports whether they were acknowledged. It returns an error if the node
// gave an answer that is never allowed.
func (l *Load) postOne(ctx context.Context, n *nodeprocess.Node, samples []sample) (bool, error) {
	l.offer(samples)
	status, text, err := n.Post(ctx, l.key, lines(samples))
	if err != nil {
		return false, nil // the result is unknown
	}
	switch status {
	case http.StatusAccepted:
		var answer struct {
			Accepted int
			Rejected []json.RawMessage
		}
		if err := json.Unmarshal(text, &answer); err != nil || answer.Accepted != len(samples) || len(answer.Rejected) != 0 {
			return false, fmt.Errorf("a POST of %d samples is answered %s", len(samples), bytes.TrimSpace(text))
		}
		l.stored(samples)
		l.posted.Add(1)
		return true, nil
	case http.StatusServiceUnavailable:
		return false, nil
	}
	return false, fmt.Errorf("a POST is answered with %d: %s", status, bytes.TrimSpace(text))
}

// publish sends telemetry by MQTT until ctx ends, over one connection for several fleets.
// When the connection is closed, it opens another one.
func (l *Load) publish(ctx context.Context, n *nodeprocess.Node, number int, fleets []*fleet) {
	for ctx.Err() == nil {
		client, err := Dial(ctx, n, ownSource, l.key, fmt.Sprintf("gateway%d", number))
		if err != nil {
			if !rest(ctx) {
				return
			}
			continue
		}
		alive, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(client.Ended, cancel)
		var publishing sync.WaitGroup
		for _, f := range fleets {
			publishing.Go(func() {
				for alive.Err() == nil && l.publishOne(alive, client, f.message()) {
				}
				cancel()
			})
		}
		publishing.Wait()
		stop()
		cancel()
		client.Close()
	}
}

// publishOne publishes samples and reports whether the connection is still usable.
func (l *Load) publishOne(ctx context.Context, client *Client, samples []sample) bool {
	l.offer(samples)
	err := client.Send(ctx, samples[0].vid, []byte(lines(samples)))
	if r, refused := errors.AsType[Refusal](err); refused && client.Ended.Err() == nil {
		l.wrong("an MQTT message is answered with 0x%02x", byte(r))
	}
	if err != nil {
		return false // the result is unknown
	}
	l.stored(samples)
	l.published.Add(1)
	return true
}
