package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// trusting returns the TLS settings of a client that trusts the system's certificates and, in
// addition, the certificate in caFile. If caFile is "", the client trusts only those of the system.
func trusting(caFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("the certificate to trust cannot be read: %w (--ca)", err)
	}
	if c.RootCAs, err = x509.SystemCertPool(); err != nil {
		c.RootCAs = x509.NewCertPool()
	}
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("the file of --ca holds no PEM certificate")
	}
	return c, nil
}
