package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carstate/client"
	"carstate/internal/nodeprocess"
)

// TestTLS gives the service a certificate: queries, telemetry and MQTT use it,
// the admin listener on loopback stays plain for the commands.
func TestTLS(t *testing.T) {
	cert, key, roots := certificate(t)
	p := start(t, t.TempDir(), "--tls-cert", cert, "--tls-key", key, "--mqtt-tls-addr", "127.0.0.1:0", "--max-age", "24h")
	token := p.issue(t)
	config := &tls.Config{RootCAs: roots}
	own := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	answer, err := client.New("https://"+p.Address(nodeprocess.Query), token, client.WithHTTPClient(own)).CarDrivingState(t.Context(), "x")
	if err != nil || answer.Reason != client.ReasonUnknown {
		t.Errorf("%v, %v", answer, err)
	}
	resp, err := own.Post("https://"+p.Address(nodeprocess.Ingest)+"/v1/telemetry", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("ingest: HTTP %d", resp.StatusCode)
	}
	// Without --ca the certificate is refused in words that say what to do.
	cmd := exec.Command(binary, "replay", "demo_drive.csv.gz", "--vid", "byTLS", "--ingest-url", "https://"+p.Address(nodeprocess.Ingest))
	cmd.Env = p.env()
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--ca FILE") {
		t.Errorf("%v: %s", err, out)
	}
	p.carstate(t, "replay", "demo_drive.csv.gz", "--vid", "byTLS", "--ca", cert, "--ingest-url", "https://"+p.Address(nodeprocess.Ingest))
	p.carstate(t, "replay", "demo_drive.csv.gz", "--vid", "byMQTTS", "--ca", cert, "--mqtt-url", "mqtts://"+p.Address("mqtt-tls-addr"))

	query := exec.Command(binary, "query", "car-driving-state", "byTLS", "--url", "https://"+p.Address(nodeprocess.Query))
	query.Env = append(p.env(), "CARSTATE_TOKEN="+p.issue(t))
	if out, err := query.CombinedOutput(); err == nil || !strings.Contains(string(out), "--ca FILE") {
		t.Errorf("%v: %s", err, out)
	}
	token, args := "CARSTATE_TOKEN="+p.issue(t), append(query.Args[1:], "--ca", cert)
	if err := until(30*time.Second, func() error { // once the drive is judged
		query := exec.Command(binary, args...)
		query.Env = append(p.env(), token)
		if out, err := query.CombinedOutput(); err != nil || !strings.Contains(string(out), "traffic jam") {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}

	// TLS 1.1 is over.
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

// certificate makes a certificate for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	return certificateUntil(t, time.Now().Add(time.Hour))
}

func certificateUntil(t *testing.T, end time.Time) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return certFile, keyFile, roots
}
