package main_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/testkit"
)

// The admin listener on loopback has none, because the commands use it without TLS.
func TestTLS_AllListenersButAdmin(t *testing.T) {
	t.Parallel()
	cert, key, roots := testkit.Certificate(t)
	p := start(t, t.TempDir(), "--tls-cert", cert, "--tls-key", key, "--mqtt-tls-addr", "127.0.0.1:0", "--max-age", "24h")
	token := p.issue(t)
	config := &tls.Config{RootCAs: roots}
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	answer, err := client.New("https://"+p.Address(nodeprocess.Query), token,
		client.WithHTTPClient(own)).CarDrivingState(t.Context(), "x")
	if err != nil || answer.Reason != client.ReasonUnknown {
		t.Errorf("got %v, %v, want that the vehicle is unknown", answer, err)
	}
	resp, err := own.Post("https://"+p.Address(nodeprocess.Ingest)+"/v1/telemetry", "application/json",
		strings.NewReader("{}"))
	testkit.NoError(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("ingest: HTTP %d", resp.StatusCode)
	}
	cmd := exec.Command(binary, "replay", demoDrive, "--vid", "byTLS", "--ingest-url",
		"https://"+p.Address(nodeprocess.Ingest))
	cmd.Env = p.env()
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--ca FILE") {
		t.Errorf("%v: %s", err, out)
	}
	p.carstate(t, "replay", demoDrive, "--vid", "byTLS", "--ca", cert, "--ingest-url",
		"https://"+p.Address(nodeprocess.Ingest))
	p.carstate(t, "replay", demoDrive, "--vid", "byMQTTS", "--ca", cert, "--mqtt-url",
		"mqtts://"+p.Address("mqtt-tls-addr"))

	query := exec.Command(binary, "query", "car-driving-state", "byTLS", "--url", "https://"+p.Address(nodeprocess.Query))
	query.Env = append(p.env(), "CARSTATE_TOKEN="+p.issue(t))
	if out, err := query.CombinedOutput(); err == nil || !strings.Contains(string(out), "--ca FILE") {
		t.Errorf("%v: %s", err, out)
	}
	token, args := "CARSTATE_TOKEN="+p.issue(t), append(query.Args[1:], "--ca", cert)
	if err := until(30*time.Second, func() error { // once the drive is folded
		query := exec.Command(binary, args...)
		query.Env = append(p.env(), token)
		if out, err := query.CombinedOutput(); err != nil || !strings.Contains(string(out), "traffic jam") {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}

	old := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, flag := range []string{"query-addr", "ingest-addr", "mqtt-tls-addr"} {
		if c, err := old.DialContext(ctx, "tcp", p.Address(flag)); err == nil {
			c.Close()
			t.Errorf("%s speaks TLS 1.1", flag)
		}
	}
}
