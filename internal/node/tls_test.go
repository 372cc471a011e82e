package node_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/node"
	"example.org/carstate/internal/test/testkit"
)

func TestEveryListenerSpeaksModernTLS(t *testing.T) {
	testkit.Slow(t, "it waits until new certificates are read")
	certFile, keyFile, roots := testkit.Certificate(t)
	config := configOf(t)
	config.TLSCert, config.TLSKey = certFile, keyFile
	config.Listeners = nil
	for _, name := range []string{node.QueryAddr, node.IngestAddr, node.MQTTTLSAddr, node.AdminAddr} {
		config.Listeners = append(config.Listeners, node.Listener{Name: name, Addr: "0.0.0.0:0", TLS: true})
	}
	n := startNode(t, config)
	addresses := make(map[string]string)
	for _, l := range config.Listeners {
		addresses[l.Name] = strings.Replace(n.Addr(l.Name).String(), "[::]", "127.0.0.1", 1)
	}
	dial := func(addr string, c *tls.Config) (*x509.Certificate, error) {
		c.RootCAs = roots
		conn, err := tls.Dial("tcp", addr, c)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0], nil
	}
	// Those of TLS 1.2 with forward secrecy and authenticated encryption.
	strong := regexp.MustCompile(`^TLS_ECDHE_(RSA|ECDSA)_WITH_(AES_\d+_GCM_SHA\d+|CHACHA20_POLY1305_SHA256)$`)
	var weak []uint16
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !strong.MatchString(suite.Name) && slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
			weak = append(weak, suite.ID)
		}
	}
	if len(weak) < 5 {
		t.Fatalf("the weak suites to try: got %d, want 5 or more", len(weak))
	}
	for flag, addr := range addresses {
		for name, c := range map[string]struct {
			config *tls.Config
			well   bool
		}{
			"TLS 1.3":              {&tls.Config{MinVersion: tls.VersionTLS13}, true},
			"TLS 1.2":              {&tls.Config{MaxVersion: tls.VersionTLS12}, true},
			"TLS 1.2, weak suites": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: weak}, false},
			"TLS 1.1":              {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		} {
			if _, err := dial(addr, c.config); (err == nil) != c.well {
				t.Errorf("%s, %s: got %v, want no error: %t", flag, name, err, c.well)
			}
		}
	}

	newCert, newKey, newRoots := testkit.Certificate(t)
	testkit.NoError(t, os.Rename(newCert, certFile))
	testkit.NoError(t, os.Rename(newKey, keyFile))
	old := roots
	roots = newRoots
	for flag, addr := range addresses {
		if err := until(time.Minute, func() error { _, err := dial(addr, &tls.Config{}); return err }); err != nil {
			t.Errorf("%s: got %v, want the new certificate", flag, err)
		}
	}
	shown, err := dial(addresses[node.AdminAddr], &tls.Config{})
	testkit.NoError(t, err)
	scraper := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: newRoots}}}
	defer scraper.CloseIdleConnections()
	metrics, err := scraper.Get(n.URL(node.AdminAddr) + "/metrics")
	testkit.NoError(t, err)
	defer metrics.Body.Close()
	text, err := io.ReadAll(metrics.Body)
	testkit.NoError(t, err)
	_, value, _ := strings.Cut(string(text), "\ncarstate_tls_certificate_expiry_timestamp_seconds ")
	value, _, _ = strings.Cut(value, "\n")
	if end, err := strconv.ParseFloat(value, 64); err != nil || int64(end) != shown.NotAfter.Unix() {
		t.Errorf("the metric says that the certificate ends at %s, %v, want %d", value, err, shown.NotAfter.Unix())
	}
	roots = old
	for flag, addr := range addresses {
		var unknown x509.UnknownAuthorityError
		if _, err := dial(addr, &tls.Config{}); !errors.As(err, &unknown) {
			t.Errorf("%s: got %v, want the old certificate unknown", flag, err)
		}
	}
}
