package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"carstate/internal/ingest"
	"carstate/internal/vehicle"
)

// sender is a front door of the service, seen from a car.
type sender interface {
	// send returns nil once all samples are acknowledged. Those of one vehicle go
	// in in their order; vehicles may overtake one another.
	send(ctx context.Context, samples []vehicle.Sample) error
	// door says where the samples went.
	door() string
	close()
}

// sendTries is how often a batch is sent before the service is given up.
const sendTries = 8

// refusal is what becomes of samples that the service will never take; the others
// that were sent with them went in.
type refusal struct {
	samples int
	reason  string // of the first
}

func (r refusal) Error() string {
	return fmt.Sprintf("%d samples were refused; the first: %s", r.samples, r.reason)
}

// httpSender posts NDJSON.
type httpSender struct {
	url    string
	as     sourceLogin
	client *http.Client
	body   []byte
}

func newHTTPSender(base string, as sourceLogin, trust *tls.Config) *httpSender {
	return &httpSender{
		url: strings.TrimSuffix(base, "/") + "/v1/telemetry",
		as:  as,
		client: &http.Client{
			Timeout:   30 * time.Second,
			Transport: &http.Transport{TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment},
			// A redirect would carry the key to where it was not given.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (s *httpSender) door() string { return strings.TrimSuffix(s.url, "/v1/telemetry") }

func (s *httpSender) close() { s.client.CloseIdleConnections() }

func (s *httpSender) send(ctx context.Context, samples []vehicle.Sample) error {
	s.body = s.body[:0]
	for i := range samples {
		s.body = ingest.AppendJSON(s.body, &samples[i])
	}
	for try := 1; ; {
		wait, err := s.post(ctx)
		switch {
		case s.as.spreads(err):
			wait = askAgain // which is no try
		case err == nil || wait == 0 || try == sendTries:
			return err
		default:
			try++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// post sends the body once. If it may help to send it again, wait says when.
func (s *httpSender) post(ctx context.Context) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.body))
	if err != nil {
		return 0, errors.New("the ingest address makes no sense (--ingest-url, --ingest-addr)")
	}
	req.Header.Set("Authorization", "Bearer "+s.as.key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := s.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, unreachable("ingest listener", req.URL.Host, "--ingest-addr or --ingest-url", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return time.Second, fmt.Errorf("the ingest listener's answer broke off: %w", err)
	}
	var answer struct {
		Error    string `json:"error"`
		Rejected []struct {
			Line   int    `json:"line"`
			Reason string `json:"reason"`
		} `json:"rejected"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode != http.StatusAccepted && answer.Error == "" && answer.Rejected == nil {
		return 0, fmt.Errorf("what answers at %s is not carstate's ingest listener (--ingest-addr, --ingest-url)", req.URL.Host)
	}
	switch {
	case len(answer.Rejected) > 0:
		return 0, refusal{len(answer.Rejected), answer.Rejected[0].Reason}
	case resp.StatusCode == http.StatusAccepted:
		return 0, nil
	case resp.StatusCode == http.StatusServiceUnavailable:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(max(1, min(seconds, 30))) * time.Second, fmt.Errorf("the service does not take telemetry now: %s", answer.Error)
	}
	err = fmt.Errorf("the service refused the telemetry: %s", answer.Error)
	if resp.StatusCode == http.StatusUnauthorized {
		err = sourceUnknown{err}
	}
	return 0, err
}

// sourceUnknown is the refusal of a node that does not know the source, or not yet.
type sourceUnknown struct{ error }

// askAgain is when such a node is asked again that may know it soon.
const askAgain = time.Second

// unreachable says what to do about a service that does not answer.
func unreachable(what, host, flags string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no %s answers at %s: is `carstate serve` running? (%s)", what, host, flags)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the %s at %s shows a certificate that this system does not trust: name it with --ca FILE", what, host)
	}
	return fmt.Errorf("the %s at %s cannot be reached: %w: check the address, and say https:// or mqtts:// if it uses TLS (%s)", what, host, err, flags)
}

// mqttSender publishes NDJSON with QoS 1 over MQTT 5.
type mqttSender struct {
	client *paho.Client
	host   string
	broken chan error // why the connection ended
}

const (
	// mqttBatch keeps a message well below the service's packet limit.
	mqttBatch = 500
	// mqttWindow is how many messages are under way; the service allows 128.
	mqttWindow = 64
)

func newMQTTSender(ctx context.Context, rawURL string, as sourceLogin, trust *tls.Config) (*mqttSender, error) {
	for {
		s, err := connectMQTT(ctx, rawURL, as, trust)
		if !as.spreads(err) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(askAgain):
		}
	}
}

func connectMQTT(ctx context.Context, rawURL string, as sourceLogin, trust *tls.Config) (*mqttSender, error) {
	conn, host, err := dialMQTT(ctx, rawURL, trust)
	if err != nil {
		return nil, err
	}
	s := &mqttSender{host: host, broken: make(chan error, 2)}
	s.client = paho.NewClient(paho.ClientConfig{
		Conn:               packets.NewThreadSafeConn(conn),
		PacketTimeout:      30 * time.Second, // a service that is busy makes publishers wait
		OnClientError:      func(err error) { s.broken <- err },
		OnServerDisconnect: func(d *paho.Disconnect) { s.broken <- fmt.Errorf("it said goodbye with reason 0x%02x", d.ReasonCode) },
	})
	ack, err := s.client.Connect(ctx, &paho.Connect{
		ClientID: as.name + "-" + rand.Text()[:8], KeepAlive: 30, CleanStart: true,
		Username: as.name, UsernameFlag: true, Password: []byte(as.key), PasswordFlag: true,
	})
	if ack != nil && ack.ReasonCode >= 0x80 {
		switch ack.ReasonCode {
		case packets.ConnackBadUsernameOrPassword, packets.ConnackNotAuthorized:
			return nil, sourceUnknown{fmt.Errorf("the MQTT listener at %s refused the source's name or key: check --source and --key (MQTT reason 0x%02x)", host, ack.ReasonCode)}
		}
		return nil, fmt.Errorf("the MQTT listener at %s takes nobody in now: try again in a while (MQTT reason 0x%02x)", host, ack.ReasonCode)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("there is no MQTT at %s: is the port right, and does it need mqtts://? (--mqtt-url)", host)
	}
	return s, nil
}

func dialMQTT(ctx context.Context, rawURL string, trust *tls.Config) (net.Conn, string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, "", errors.New("the MQTT address makes no sense (--mqtt-url, --mqtt-addr)")
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), map[string]string{"mqtt": "1883", "mqtts": "8883"}[u.Scheme])
	}
	d := &net.Dialer{Timeout: 10 * time.Second}
	var conn net.Conn
	if u.Scheme == "mqtts" {
		conn, err = (&tls.Dialer{NetDialer: d, Config: trust}).DialContext(ctx, "tcp", host)
	} else {
		conn, err = d.DialContext(ctx, "tcp", host)
	}
	if err != nil {
		return nil, "", unreachable("MQTT listener", host, "--mqtt-url or --mqtt-addr", err)
	}
	return conn, host, nil
}

func (s *mqttSender) send(ctx context.Context, samples []vehicle.Sample) error {
	of := make(map[vehicle.ID][]vehicle.Sample)
	for i := range samples {
		of[samples[i].Vehicle] = append(of[samples[i].Vehicle], samples[i])
	}
	if len(of) == 1 {
		return s.sendVehicle(ctx, samples)
	}
	// Each vehicle has a topic of its own, so messages cannot hold several; but
	// they need not wait for one another.
	var publishing sync.WaitGroup
	free, errs := make(chan struct{}, mqttWindow), make(chan error, len(of))
	for _, mine := range of {
		free <- struct{}{}
		publishing.Go(func() {
			errs <- s.sendVehicle(ctx, mine)
			<-free
		})
	}
	publishing.Wait()
	close(errs)
	var refused refusal
	for err := range errs {
		r, ok := errors.AsType[refusal](err)
		switch {
		case ok:
			refused = refusal{refused.samples + r.samples, r.reason}
		case err != nil:
			return err
		}
	}
	if refused.samples > 0 {
		return refused
	}
	return nil
}

// sendVehicle sends samples of one vehicle.
func (s *mqttSender) sendVehicle(ctx context.Context, samples []vehicle.Sample) error {
	refused := refusal{}
	for len(samples) > 0 {
		n := min(mqttBatch, len(samples))
		var body []byte
		for i := range samples[:n] {
			body = ingest.AppendJSON(body, &samples[i])
		}
		resp, err := s.client.Publish(ctx, &paho.Publish{
			QoS: 1, Topic: "vehicles/" + string(samples[0].Vehicle) + "/telemetry", Payload: body,
		})
		switch {
		case resp != nil && resp.ReasonCode >= 0x80:
			refused.samples += n
			refused.reason = fmt.Sprintf("MQTT reason 0x%02x", resp.ReasonCode)
			if resp.Properties != nil && resp.Properties.ReasonString != "" {
				refused.reason = resp.Properties.ReasonString
			}
		case err != nil:
			select {
			case why := <-s.broken:
				err = why
			default:
			}
			return fmt.Errorf("the MQTT connection broke before the telemetry was acknowledged: %w", err)
		}
		samples = samples[n:]
	}
	if refused.samples > 0 {
		return refused
	}
	return nil
}

func (s *mqttSender) door() string { return "MQTT at " + s.host }

func (s *mqttSender) close() {
	// The connection may be broken already; nothing depends on the goodbye.
	_ = s.client.Disconnect(&paho.Disconnect{ReasonCode: 0})
}
