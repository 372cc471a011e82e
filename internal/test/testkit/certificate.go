package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate is valid for a month from now.
func Certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	return CertificateUntil(t, time.Now().AddDate(0, 1, 0))
}

// The certificate is self-signed, for 127.0.0.1, and valid for the two months before end.
func CertificateUntil(t *testing.T, end time.Time) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: end.AddDate(0, -2, 0), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	keyDER, err2 := x509.MarshalPKCS8PrivateKey(key)
	parsed, err3 := x509.ParseCertificate(der)
	NoError(t, errors.Join(err1, err2, err3))
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		NoError(t, os.WriteFile(name, pem.EncodeToMemory(block), 0o600))
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return certFile, keyFile, roots
}
