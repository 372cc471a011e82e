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

	"carstate/internal/periodic"
)

// keyPair is what --tls-cert and --tls-key hold, read again when the files
// change, so that a renewal needs no restart. Connections that are open keep the
// certificate that they began with.
type keyPair struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]

	mu      sync.Mutex        // guards the hashes of the files' contents that follow
	used    [sha256.Size]byte // in current
	seen    [sha256.Size]byte // at the last look
	refused [sha256.Size]byte // what could not be used and was warned of
}

// lookEvery is how often the files are looked at. Two small files cost less than
// to be told of changes, which links and mounted secrets make hard.
const lookEvery = 2 * time.Second

// openKeyPair reads the pair; it returns nil if there is to be none.
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

// suites are those of TLS 1.2 that keep past traffic secret and encrypt with
// authentication. TLS 1.3 has no others, and chooses itself.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// config is the TLS of every listener; nil if there is no certificate.
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

// expires is when the certificate that is shown ends.
func (c *keyPair) expires() time.Time { return c.current.Load().Leaf.NotAfter }

// watch looks at the files until the context ends.
func (c *keyPair) watch(ctx context.Context) {
	for range periodic.Every(ctx, lookEvery) {
		c.look()
	}
}

// look uses the pair if it has changed, and is the same as at the last look:
// whoever renews it writes one file after the other. A pair that cannot be used
// leaves the old one in place, and is warned of once.
func (c *keyPair) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookOnce()
}

// lookNow uses the pair as it is: the operator who asks for that has written both files.
func (c *keyPair) lookNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = [sha256.Size]byte{} // it is worth a word once more
	c.lookOnce()
	c.lookOnce()
}

func (c *keyPair) lookOnce() {
	cert, key, hash, err := c.read()
	settled := hash == c.seen
	c.seen = hash
	if !settled || hash == c.used || hash == c.refused {
		return
	}
	if err == nil {
		err = c.use(cert, key, hash)
	}
	if err != nil {
		c.refused = hash
		c.log.Warn("the new certificate cannot be used, the old one stays: check --tls-cert and --tls-key", "error", err, "old_expires", c.expires())
		return
	}
	c.log.Info("the certificate was renewed", "expires", c.expires())
}

// read returns what the files hold, and a hash of it or of why they cannot be
// read.
func (c *keyPair) read() (cert, key []byte, hash [sha256.Size]byte, err error) {
	cert, err = os.ReadFile(c.certFile)
	if err == nil {
		key, err = os.ReadFile(c.keyFile)
	}
	if err != nil {
		return nil, nil, sha256.Sum256([]byte(err.Error())), err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %s%s", len(cert), cert, key)
	return cert, key, [sha256.Size]byte(h.Sum(nil)), nil
}

var errExpired = errors.New("the certificate has expired")

// use puts a pair in place. The first one may have expired: a service that
// speaks is easier to mend than one that does not start.
func (c *keyPair) use(cert, key []byte, hash [sha256.Size]byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		if c.current.Load() != nil {
			return errExpired
		}
		c.log.Warn("the certificate has expired: renew it, it is read again at once", "expired", pair.Leaf.NotAfter)
	}
	c.current.Store(&pair)
	c.used, c.refused = hash, [sha256.Size]byte{}
	return nil
}
