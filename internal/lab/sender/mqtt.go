package sender

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/vehicle"
)

type mqttSender struct {
	client *paho.Client
	host   string
	broken chan error // why the connection ended
}

const (
	// samples per message, well below the packet limit
	mqttBatch = 500
	// unacknowledged messages; the service allows 128
	mqttWindow = 64
)

// MQTT connects to a URL such as mqtt://127.0.0.1:1883, again while a node may not know a new
// source yet. trust is as in [HTTP].
func MQTT(ctx context.Context, rawURL string, as Login, trust *tls.Config) (Sender, error) {
	for {
		s, err := connectMQTT(ctx, rawURL, as, trust)
		if !as.spreads(err) {
			return s, err
		}
		if err := periodic.Pause(ctx, askAgain); err != nil {
			return nil, err
		}
	}
}

func connectMQTT(ctx context.Context, rawURL string, as Login, trust *tls.Config) (Sender, error) {
	conn, host, err := dialMQTT(ctx, rawURL, trust)
	if err != nil {
		return nil, err
	}
	s := &mqttSender{host: host, broken: make(chan error, 2)}
	s.client = paho.NewClient(paho.ClientConfig{
		Conn:          packets.NewThreadSafeConn(conn),
		PacketTimeout: 30 * time.Second, // a busy service makes publishers wait
		OnClientError: func(err error) { s.broken <- err },
		OnServerDisconnect: func(d *paho.Disconnect) {
			s.broken <- fmt.Errorf("the server disconnected with reason 0x%02x", d.ReasonCode)
		},
	})
	ack, err := s.client.Connect(ctx, &paho.Connect{
		ClientID: as.Name + "-" + rand.Text()[:8], KeepAlive: 30, CleanStart: true,
		Username: as.Name, UsernameFlag: true, Password: []byte(as.Key), PasswordFlag: true,
	})
	switch {
	case ack != nil && (ack.ReasonCode == packets.ConnackBadUsernameOrPassword ||
		ack.ReasonCode == packets.ConnackNotAuthorized):
		return nil, sourceUnknown{fmt.Errorf("the MQTT listener at %s refused the source's name or key: "+
			"check --source and --key (MQTT reason 0x%02x)", host, ack.ReasonCode)}
	case ack != nil && ack.ReasonCode >= 0x80:
		return nil, fmt.Errorf("the MQTT listener at %s accepts no connection now: try again later (MQTT reason 0x%02x)",
			host, ack.ReasonCode)
	case err == nil:
		return s, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("no MQTT server at %s: is the port right, and does it need mqtts://? (--mqtt-url)", host)
}

func dialMQTT(ctx context.Context, rawURL string, trust *tls.Config) (net.Conn, string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, "", errors.New("invalid MQTT address (--mqtt-url, --mqtt-addr)")
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), map[string]string{"mqtt": "1883", "mqtts": "8883"}[u.Scheme])
	}
	d := &net.Dialer{Timeout: 10 * time.Second}
	dial := d.DialContext
	if u.Scheme == "mqtts" {
		dial = (&tls.Dialer{NetDialer: d, Config: trust}).DialContext
	}
	conn, err := dial(ctx, "tcp", host)
	if err != nil {
		return nil, "", unreachable("MQTT listener", host, "--mqtt-url or --mqtt-addr", err)
	}
	return conn, host, nil
}

func (s *mqttSender) Send(ctx context.Context, samples []vehicle.Sample) error {
	of := make(map[vehicle.ID][]vehicle.Sample)
	for i := range samples {
		of[samples[i].Vehicle] = append(of[samples[i].Vehicle], samples[i])
	}
	// A message is of one vehicle.
	var publishing sync.WaitGroup
	var mu sync.Mutex // guards the two below
	var refused Refusal
	var broken error
	free := make(chan struct{}, mqttWindow)
	for _, mine := range of {
		free <- struct{}{}
		publishing.Go(func() {
			r, err := s.sendVehicle(ctx, mine)
			mu.Lock()
			refused = Refusal{refused.Samples + r.Samples, cmp.Or(refused.Reason, r.Reason)}
			broken = cmp.Or(broken, err)
			mu.Unlock()
			<-free
		})
	}
	publishing.Wait()
	if broken == nil && refused.Samples > 0 {
		return refused
	}
	return broken
}

// sendVehicle sends one message after the other, to keep the order.
func (s *mqttSender) sendVehicle(ctx context.Context, samples []vehicle.Sample) (refused Refusal, _ error) {
	for batch := range slices.Chunk(samples, mqttBatch) {
		var body []byte
		for i := range batch {
			body = telemetry.AppendJSON(body, &batch[i])
		}
		resp, err := s.publish(ctx, samples[0].Vehicle, body)
		switch {
		case resp != nil && resp.ReasonCode >= 0x80:
			refused.Samples += len(batch)
			refused.Reason = cmp.Or(refused.Reason, reasonOf(resp), fmt.Sprintf("MQTT reason 0x%02x", resp.ReasonCode))
		case err != nil:
			select {
			case why := <-s.broken:
				err = why
			default:
			}
			return refused, fmt.Errorf("the MQTT connection broke before the telemetry was acknowledged: %w", err)
		}
	}
	return refused, nil
}

func (s *mqttSender) publish(ctx context.Context, of vehicle.ID, body []byte) (*paho.PublishResponse, error) {
	for {
		resp, err := s.client.Publish(ctx, &paho.Publish{QoS: 1, Topic: "vehicles/" + string(of) + "/telemetry", Payload: body})
		if resp == nil || resp.ReasonCode != packets.PubackQuotaExceeded {
			return resp, err
		}
		wait := waitInWords.FindStringSubmatch(reasonOf(resp))
		if wait == nil { // not refused for the rate
			return resp, err
		}
		seconds, _ := strconv.Atoi(wait[1])
		if err := periodic.Pause(ctx, time.Duration(seconds)*time.Second); err != nil {
			return nil, err
		}
	}
}

// The wait is in words, because MQTT has no other place for it.
var waitInWords = regexp.MustCompile(`wait ([0-9]+) s$`)

func reasonOf(resp *paho.PublishResponse) string {
	if resp.Properties == nil {
		return ""
	}
	return resp.Properties.ReasonString
}

func (s *mqttSender) Door() string { return "MQTT at " + s.host }

func (s *mqttSender) Close() {
	// The connection may be broken already.
	_ = s.client.Disconnect(&paho.Disconnect{ReasonCode: 0})
}
