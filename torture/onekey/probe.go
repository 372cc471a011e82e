package onekey

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"carstate/torture/mqtt"
	"carstate/torture/row"
)

// The source whose delays are measured sends in an open loop: its samples are due at a constant
// rate. The delay of each sample is measured from the time at which it was due, so a stall delays
// all samples that are due during it.
const (
	senders = 16  // per protocol
	rate    = 200 // samples a second, per protocol
	patient = 10 * time.Second
)

var protocols = []string{"HTTP", "MQTT"}

// probe sends as the source whose key is not stolen, and measures its delays.
type probe struct {
	a       *row.Attempt
	senders [][]sender // by protocol

	mu           sync.Mutex // guards sent, failed and the durations passed to note
	sent, failed int
}

// sender sends one sample over its own connection and waits until it is acknowledged.
type sender interface {
	send(ctx context.Context, now time.Time) error
	close()
}

func newProbe(a *row.Attempt, t *target, key string) *probe {
	p := &probe{a: a, senders: make([][]sender, len(protocols))}
	for i := range senders {
		p.senders[0] = append(p.senders[0], &byHTTP{t: t, key: key, vid: fmt.Sprint("Web", i),
			client: http.Client{Timeout: patient, Transport: &http.Transport{TLSClientConfig: t.config.Clone()}}})
		p.senders[1] = append(p.senders[1], &byMQTT{t: t, key: key, vid: fmt.Sprint("Car", i)})
	}
	return p
}

func (p *probe) close() {
	for _, of := range p.senders {
		for _, s := range of {
			s.close()
		}
	}
}

// measure sends for a number of windows of one second. For each protocol, it returns the
// median of the windows' 99th percentiles.
func (p *probe) measure(ctx context.Context, windows int, during string) (p99 []time.Duration) {
	began := time.Now()
	var all sync.WaitGroup
	took := make([]map[int][]time.Duration, len(protocols)) // by window
	for protocol, of := range p.senders {
		took[protocol] = make(map[int][]time.Duration)
		for i, s := range of {
			all.Go(func() {
				due := began.Add(time.Duration(i) * time.Second / rate)
				end := began.Add(time.Duration(windows) * time.Second)
				for ; due.Before(end) && ctx.Err() == nil; due = due.Add(time.Second * senders / rate) {
					row.Pause(ctx, time.Until(due))
					err := s.send(ctx, time.Now())
					p.note(ctx, took[protocol], int(due.Sub(began)/time.Second), time.Since(due), err, during)
				}
			})
		}
	}
	all.Wait()
	for _, windows := range took {
		var each []time.Duration
		for _, t := range windows {
			each = append(each, row.Percentile(t, 0.99))
		}
		p99 = append(p99, max(1, row.Percentile(each, 0.5)))
	}
	return p99
}

// note records the result of one sample.
func (p *probe) note(
	ctx context.Context, took map[int][]time.Duration, window int, t time.Duration, err error, during string,
) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	p.sent++
	took[window] = append(took[window], t) // that of a failed sample, too: it took at least as long
	if err != nil {
		if p.failed++; p.failed <= 5 {
			p.a.Wrong("during %s of one source, another one's sample: %v", during, err)
		}
	}
}

// byHTTP sends over HTTP/1.1.
type byHTTP struct {
	t        *target
	key, vid string
	client   http.Client
}

func (s *byHTTP) close() { s.client.CloseIdleConnections() }

func (s *byHTTP) send(ctx context.Context, now time.Time) error {
	body := fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, s.vid, now.UnixMilli())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.t.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("HTTP %d %.200s", resp.StatusCode, text)
	}
	return errors.Join(err, resp.Body.Close())
}

// byMQTT sends messages of about 10 KB. Each message needs more memory than the amount that is
// reserved for every connection.
type byMQTT struct {
	t        *target
	key, vid string
	conn     net.Conn // nil: not connected
	in       *bufio.Reader
	id       uint16
}

var padding = strings.Repeat(" \n", 5000)

func (s *byMQTT) close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

func (s *byMQTT) send(ctx context.Context, now time.Time) (err error) {
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.conn == nil {
		if s.conn, s.in, err = login(ctx, s.t, s.vid, "other", s.key); err != nil {
			return err
		}
	}
	if err := s.conn.SetDeadline(time.Now().Add(patient)); err != nil {
		return err
	}
	s.id = max(1, s.id+1)
	sample := fmt.Sprintf(`{"time":%d,"signals":{"Vehicle.Speed":50}}`, now.UnixMilli())
	_, err1 := s.conn.Write(mqtt.Publish(4, 2, s.id, "vehicles/"+s.vid+"/telemetry", padding+sample))
	answer := make([]byte, 4)
	_, err2 := io.ReadFull(s.in, answer)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("MQTT: %w", err)
	}
	if want := []byte{0x40, 2, byte(s.id >> 8), byte(s.id)}; string(answer) != string(want) {
		return fmt.Errorf("MQTT: the answer to message %d is % x", s.id, answer)
	}
	return nil
}
