package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// Trusting trusts the system's certificates and, unless caFile is "", those in that file.
func Trusting(caFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("the file of the certificate to trust: %w", err)
	}
	if c.RootCAs, err = x509.SystemCertPool(); err != nil {
		c.RootCAs = x509.NewCertPool()
	}
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("the file of the certificate to trust, %s, holds no PEM certificate", caFile)
	}
	return c, nil
}

// clientTimeout suffices for a list of a million vehicles. Backups, restores and exports have none.
const clientTimeout = 2 * time.Minute

// HTTPClient ignores the environment's proxies and follows no redirect, so that secrets are sent
// only to the service.
func HTTPClient(trust *tls.Config) *http.Client {
	return &http.Client{
		Timeout:       clientTimeout,
		Transport:     &http.Transport{TLSClientConfig: trust, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
