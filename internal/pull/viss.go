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

	"example.org/carstate/internal/ingest"
)

// vissBroker has no memory: what is sent while it is not connected is lost.
type vissBroker struct{ *websocket.Conn }

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
	conn.SetReadLimit(ingest.MaxMapped)
	for i, t := range p.Topics {
		type filter struct {
			Type      string            `json:"type"`    // of version 2
			Variant   string            `json:"variant"` // of version 3
			Parameter map[string]string `json:"parameter"`
		}
		request, err := json.Marshal(struct {
			Action        string `json:"action"`
			Path          string `json:"path"`
			Filter        filter `json:"filter"`
			Authorization string `json:"authorization,omitempty"`
			ID            string `json:"requestId"`
		}{"subscribe", t, filter{"timebased", "timebased", map[string]string{"period": "1000"}}, p.Password, strconv.Itoa(i)})
		if err == nil {
			err = conn.Write(ctx, websocket.MessageText, request)
		}
		if err != nil {
			conn.CloseNow()
			return nil, err
		}
	}
	return vissBroker{conn}, nil
}

func (b vissBroker) receive(ctx context.Context, out chan<- message) error {
	for {
		_, body, err := b.Read(ctx)
		if err != nil {
			return err
		}
		var answer struct {
			Action string `json:"action"`
			Error  any    `json:"error"`
		}
		if json.Unmarshal(body, &answer) == nil && answer.Action == "subscribe" {
			if answer.Error != nil {
				return errors.New("the VISS server refuses a subscription: check --topic, and CARSTATE_BROKER_PASSWORD")
			}
			continue
		}
		if err := put(ctx, out, message{"", body, time.Now(), noAck}); err != nil {
			return err
		}
	}
}

func (b vissBroker) flush() error { return nil }

func (b vissBroker) close() { b.CloseNow() }
