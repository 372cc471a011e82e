package pull

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"example.org/carstate/internal/telemetry"
)

// vissBroker loses what is sent while it is not connected.
type vissBroker struct {
	*websocket.Conn
	paths []string
	token string
}

func openVISS(ctx context.Context, p *puller) (broker, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	scheme := "ws://"
	if p.Config.TLS != nil {
		scheme = "wss://"
	}
	conn, _, err := websocket.Dial(ctx, scheme+p.Hosts[0]+p.Path, &websocket.DialOptions{
		Subprotocols: []string{"VISSv3", "VISSv2"},
		HTTPClient:   &http.Client{Transport: &http.Transport{TLSClientConfig: p.Config.TLS}},
	})
	if err != nil {
		return nil, fmt.Errorf("no VISS server (check the URL and --tls): %w", err)
	}
	conn.SetReadLimit(telemetry.MaxMapped)
	b := vissBroker{conn, p.Topics, p.Password}
	for id := range p.Topics {
		if err := b.subscribe(ctx, id); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// By the standard, the period is a text, but Kuksa needs a number. The first try for a path has the
// text; the second has the number, and an id from len(b.paths) on.
func (b vissBroker) subscribe(ctx context.Context, id int) error {
	period := any("1000") // milliseconds
	if id >= len(b.paths) {
		period = 1000
	}
	request := map[string]any{"action": "subscribe", "path": b.paths[id%len(b.paths)], "requestId": strconv.Itoa(id),
		"filter": map[string]any{"type": "timebased", "variant": "timebased", // VISS 2: type; 3: variant
			"parameter": map[string]any{"period": period}}}
	if b.token != "" {
		request["authorization"] = b.token
	}
	return wsjson.Write(ctx, b.Conn, request)
}

func (b vissBroker) receive(ctx context.Context, out chan<- message) error {
	for {
		_, body, err := b.Read(ctx)
		if err != nil {
			return err
		}
		var answer struct {
			Action string `json:"action"`
			ID     any    `json:"requestId"`
			Error  any    `json:"error"`
		}
		if json.Unmarshal(body, &answer) == nil && answer.Action == "subscribe" {
			if answer.Error == nil {
				continue
			}
			id, err := strconv.Atoi(fmt.Sprint(answer.ID))
			if err != nil || id < 0 || id >= len(b.paths) {
				return errors.New("the VISS server refuses a subscription: check --topic, and CARSTATE_BROKER_PASSWORD")
			}
			if err := b.subscribe(ctx, id+len(b.paths)); err != nil {
				return err
			}
			continue
		}
		if err := put(ctx, out, message{"", body, time.Now(), noAck}); err != nil {
			return err
		}
	}
}

func (b vissBroker) flush() error { return nil }

func (b vissBroker) close() { _ = b.CloseNow() }
