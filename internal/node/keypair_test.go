package node

import (
	"log/slog"
	"os"
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
		t.Fatal("the certificate: got the old one, want the new one")
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
			t.Errorf("case %d: got another certificate, want the old one", i)
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
		t.Errorf("the log: got a key in it, want none:\n%s", log)
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
			t.Errorf("the log: got error %v and %s, want %q", err, log, want)
		}
		if want == "" && log.String() != "" {
			t.Errorf("the log: got %s, want no warning", log)
		}
	}
}
