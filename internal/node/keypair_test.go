package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/testkit"
)

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	testkit.NoError(t, err)
}

// If a pair cannot be used, the old one stays in use, with one line in the log.
func TestKeyPair_GoodAndBadRenewals(t *testing.T) {
	certFile, keyFile, _ := testkit.Certificate(t)
	newCert, newKey, _ := testkit.Certificate(t)
	oldCert, oldKey, _ := testkit.CertificateUntil(t, time.Now().Add(-time.Minute))
	log := new(testkit.Buffer)
	k, err := openKeyPair(certFile, keyFile, slog.New(slog.NewTextHandler(log, nil)))
	testkit.NoError(t, err)
	first := k.current.Load()
	logged := func(warnings, renewals int) {
		t.Helper()
		for range 4 {
			k.check(false)
		}
		if w, r := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "was renewed"); w != warnings ||
			r != renewals {
			t.Errorf("%d warnings and %d renewals, want %d and %d:\n%s", w, r, warnings, renewals, log)
		}
	}
	logged(0, 0)

	copyFile(t, certFile, newCert)
	k.check(false)
	copyFile(t, keyFile, newKey)
	logged(0, 1)
	second := k.current.Load()
	if second == first {
		t.Fatal("the new certificate is not used")
	}

	for i, breakIt := range []func(){
		func() { copyFile(t, certFile, newKey) },                                      // not a certificate
		func() { copyFile(t, certFile, oldCert) },                                     // a certificate for another key
		func() { copyFile(t, certFile, oldCert); copyFile(t, keyFile, oldKey) },       // expired
		func() { os.Remove(certFile) },                                                // gone
		func() { copyFile(t, certFile, newCert); os.Truncate(keyFile, 10) },           // cut off
		func() { os.Remove(keyFile); os.Mkdir(keyFile, 0o700); os.Chmod(keyFile, 0) }, // a directory
	} {
		breakIt()
		logged(i+1, 1)
		if k.current.Load() != second {
			t.Errorf("case %d: the old certificate is not kept", i)
		}
	}

	os.Remove(keyFile)
	copyFile(t, keyFile, newKey)
	logged(6, 1)
	thirdCert, thirdKey, _ := testkit.Certificate(t)
	copyFile(t, certFile, thirdCert)
	copyFile(t, keyFile, thirdKey)
	logged(6, 2)
	if strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("the log holds a key:\n%s", log)
	}
}

// An operator can repair a running service more easily than one that does not start.
func TestKeyPair_StartsAndWarns(t *testing.T) {
	for want, end := range map[string]time.Time{
		"has expired":   time.Now().Add(-time.Minute),
		"expires soon":  time.Now().AddDate(0, 0, 13),
		"":              time.Now().AddDate(0, 0, 15),
		"not valid yet": time.Now().AddDate(0, 3, 0),
	} {
		certFile, keyFile, _ := testkit.CertificateUntil(t, end)
		log := new(testkit.Buffer)
		k, err := openKeyPair(certFile, keyFile, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil || k.current.Load() == nil || !strings.Contains(log.String(), want) {
			t.Errorf("%q: %v, %s", want, err, log)
		}
		if want == "" && log.String() != "" {
			t.Errorf("the log warns without a reason: %s", log)
		}
	}
}

func TestEveryListenerSpeaksModernTLS(t *testing.T) {
	certFile, keyFile, roots := testkit.Certificate(t)
	config := configOf(t)
	config.TLSCert, config.TLSKey = certFile, keyFile
	config.Listeners = nil
	for _, name := range []string{QueryAddr, IngestAddr, MQTTTLSAddr, AdminAddr} {
		config.Listeners = append(config.Listeners, Listener{Name: name, Addr: "0.0.0.0:0", TLS: true})
	}
	n := startNode(t, config)
	addresses := make(map[string]string)
	for flag, l := range n.ports {
		addresses[flag] = strings.Replace(l.Addr().String(), "[::]", "127.0.0.1", 1)
	}
	if len(addresses) != 4 {
		t.Fatalf("listening: %v", addresses)
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
	var weak []uint16 // every suite of TLS 1.2 and older that the node does not offer
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !slices.Contains(suites, suite.ID) && slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
			weak = append(weak, suite.ID)
		}
	}
	if len(weak) < 5 {
		t.Fatalf("only %d weak suites to try", len(weak))
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
				t.Errorf("%s, %s: %v", flag, name, err)
			}
		}
	}

	newCert, newKey, newRoots := testkit.Certificate(t)
	copyFile(t, certFile, newCert)
	copyFile(t, keyFile, newKey)
	old := roots
	roots = newRoots
	for flag, addr := range addresses {
		if err := until(time.Minute, func() error { _, err := dial(addr, &tls.Config{}); return err }); err != nil {
			t.Errorf("%s does not show the new certificate: %v", flag, err)
		}
	}
	roots = old
	for flag, addr := range addresses {
		var unknown x509.UnknownAuthorityError
		if _, err := dial(addr, &tls.Config{}); !errors.As(err, &unknown) {
			t.Errorf("%s still shows the old certificate: %v", flag, err)
		}
	}
	want := fmt.Sprintf("%d", n.cert.expires().Unix())
	families, err := n.registry.Gather()
	testkit.NoError(t, err)
	for _, m := range families {
		if m.GetName() == "carstate_tls_certificate_expiry_timestamp_seconds" {
			if got := fmt.Sprintf("%.0f", m.Metric[0].Gauge.GetValue()); got != want {
				t.Errorf("the metric says %s, want %s", got, want)
			}
			return
		}
	}
	t.Error("no metric says when the certificate ends")
}
