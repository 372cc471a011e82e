package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"carstate/internal/nodeprocess"
)

// post sends telemetry by HTTP until the context ends.
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

// postOne reports whether the samples were acknowledged. The error is an answer
// that must not be.
func (l *Load) postOne(ctx context.Context, n *nodeprocess.Node, samples []sample) (bool, error) {
	l.offer(samples)
	must := l.MustAnswer.Load()
	status, text, err := n.Post(ctx, l.key, lines(samples))
	if err != nil && must && l.MustAnswer.Load() && ctx.Err() == nil {
		return false, fmt.Errorf("a POST is not answered while the node is up: %w", err)
	}
	if err != nil {
		return false, nil // nobody knows
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
		l.Stats.Posted.Add(1)
		return true, nil
	case http.StatusServiceUnavailable:
		l.Stats.PostsRefused.Add(1)
		return false, nil
	}
	return false, fmt.Errorf("a POST is answered with %d: %s", status, bytes.TrimSpace(text))
}

// publish sends telemetry by MQTT until the context ends, over one connection for
// several fleets; over another one when that is closed.
func (l *Load) publish(ctx context.Context, n *nodeprocess.Node, number int, fleets []*fleet) {
	for ctx.Err() == nil {
		client, closed, told := l.connect(ctx, n, fmt.Sprintf("gateway%d", number))
		if client == nil {
			if !rest(ctx) {
				return
			}
			continue
		}
		alive, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(closed, cancel)
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
		_ = client.Disconnect(&paho.Disconnect{}) // it may be closed already
		if closed.Err() != nil && !told.Load() {
			l.Stats.MQTTCut.Add(1)
		}
	}
}

// publishOne reports whether the connection is still good.
func (l *Load) publishOne(ctx context.Context, client *paho.Client, samples []sample) bool {
	l.offer(samples)
	resp, err := client.Publish(ctx, &paho.Publish{QoS: 1, Topic: "vehicles/" + samples[0].vid + "/telemetry", Payload: []byte(lines(samples))})
	switch {
	case resp != nil && resp.ReasonCode >= 0x80:
		l.wrong("an MQTT message is answered with 0x%02x", resp.ReasonCode)
		return false
	case err != nil || resp == nil:
		return false // nobody knows
	}
	l.stored(samples)
	l.Stats.Published.Add(1)
	return true
}

// connect returns a client, a context that ends with its connection, and whether
// the node has said why it ends it; nil if there is none to be had now.
func (l *Load) connect(ctx context.Context, n *nodeprocess.Node, id string) (*paho.Client, context.Context, *atomic.Bool) {
	must := l.MustAnswer.Load()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Address(nodeprocess.MQTT))
	if err != nil {
		if must && l.MustAnswer.Load() && ctx.Err() == nil {
			l.wrong("MQTT cannot be connected to while the node is up: %v", err)
		}
		return nil, nil, nil
	}
	closed, closing := context.WithCancel(context.Background())
	told := new(atomic.Bool)
	client := paho.NewClient(paho.ClientConfig{
		Conn:          packets.NewThreadSafeConn(conn),
		OnClientError: func(error) { closing() },
		OnServerDisconnect: func(*paho.Disconnect) {
			told.Store(true)
			l.Stats.MQTTRefused.Add(1)
			closing()
		},
	})
	answer, err := client.Connect(ctx, &paho.Connect{
		ClientID: id, KeepAlive: 30, CleanStart: true, Username: ownSource, UsernameFlag: true, Password: []byte(l.key), PasswordFlag: true,
	})
	if err != nil {
		const unavailable = 0x88
		switch {
		case answer == nil:
			l.Stats.MQTTCut.Add(1)
		case answer.ReasonCode == unavailable:
			l.Stats.MQTTRefused.Add(1)
		}
		closing()
		conn.Close()
		return nil, nil, nil
	}
	return client, closed, told
}
