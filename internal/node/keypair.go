package node

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"example.org/carstate/internal/periodic"
)

// keyPair is reloaded when its files change; open connections keep the certificate that they began
// with.
type keyPair struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]

	mu      sync.Mutex // guards used, seen and refused, which are hashes of the files' contents
	used    [sha256.Size]byte
	seen    [sha256.Size]byte
	refused [sha256.Size]byte // of the last pair that was rejected with a warning
}

// The files are polled: subscribing is difficult with symbolic links and mounted secrets.
const checkEvery = 2 * time.Second

func openKeyPair(certFile, keyFile string, log *slog.Logger) (*keyPair, error) {
	if certFile == "" {
		return nil, nil
	}
	c := &keyPair{certFile: certFile, keyFile: keyFile, log: log}
	cert, key, hash, err := c.read()
	if err == nil {
		err = c.use(cert, key, hash)
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate cannot be used: check --tls-cert and --tls-key: %w", err)
	}
	return c, nil
}

// suites are those of TLS 1.2 with forward secrecy and authenticated encryption, like all of 1.3.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func (c *keyPair) config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
		MinVersion:     tls.VersionTLS12,
		CipherSuites:   suites,
	}
}

func (c *keyPair) expires() time.Time { return c.current.Load().Leaf.NotAfter }

func (c *keyPair) watch(ctx context.Context) {
	for range periodic.Every(ctx, checkEvery) {
		c.check(false)
	}
}

// A renewal writes one file after the other, so check waits until two checks have read the same
// pair, or complete is set. A pair that cannot be used is logged once, and at each reload.
func (c *keyPair) check(complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cert, key, hash, err := c.read()
	settled := hash == c.seen
	c.seen = hash
	if hash == c.used || !complete && (!settled || hash == c.refused) {
		return
	}
	if err == nil {
		err = c.use(cert, key, hash)
	}
	if err != nil {
		c.refused = hash
		c.log.Warn("the new certificate cannot be used, and the old one stays in use: check --tls-cert and --tls-key",
			"error", err, "old_expires", c.expires())
		return
	}
	c.log.Info("the certificate was renewed", "expires", c.expires())
}

func (c *keyPair) read() (cert, key []byte, hash [sha256.Size]byte, err error) {
	cert, err = os.ReadFile(c.certFile)
	if err == nil {
		key, err = os.ReadFile(c.keyFile)
	}
	return cert, key, sha256.Sum256(fmt.Appendf(nil, "%d %s%s%v", len(cert), cert, key, err)), err
}

const expiresSoon = 14 * day // The alert CarstateCertificateExpires has the same limit.

var errExpired = errors.New("the certificate has expired")

// use accepts an expired certificate at the start: a running service is easier to repair.
func (c *keyPair) use(cert, key []byte, hash [sha256.Size]byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	switch left := time.Until(pair.Leaf.NotAfter); {
	case left < 0 && c.current.Load() != nil:
		return errExpired
	case left < 0:
		c.log.Warn("the certificate has expired: renew it; the new files are read without a restart", "expired",
			pair.Leaf.NotAfter)
	case left < expiresSoon:
		c.log.Warn("the certificate expires soon: renew it; the new files are read without a restart", "expires",
			pair.Leaf.NotAfter)
	}
	if begins := pair.Leaf.NotBefore; time.Now().Before(begins) {
		c.log.Warn("the certificate is not valid yet: check it and the clock of this machine", "begins", begins)
	}
	c.current.Store(&pair)
	c.used, c.refused = hash, [sha256.Size]byte{}
	return nil
}
