package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// listeners holds the open ports of a node, by flag.
type listeners map[string]net.Listener

// listen opens all ports or none. With anyPort, a port that is in use is
// replaced by a free one.
func listen(addrs []address, anyPort func(address) bool) (_ listeners, err error) {
	open := make(listeners)
	defer func() {
		if err != nil {
			open.close()
		}
	}()
	for _, a := range addrs {
		l, err := net.Listen("tcp", a.addr)
		if errors.Is(err, syscall.EADDRINUSE) && anyPort(a) {
			host, _, _ := net.SplitHostPort(a.addr)
			l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		}
		if err != nil {
			return nil, listenError(a, err)
		}
		open[a.flag] = l
	}
	return open, nil
}

func listenError(a address, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("the address %s is in use, perhaps by another carstate: stop that program or choose another %s", a.addr, a.flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("the port of %s needs more rights than this user has: choose one above 1023 for %s", a.addr, a.flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is no address of this machine: choose another %s", a.addr, a.flag)
	}
	return fmt.Errorf("%s cannot be opened: check %s: %w", a.addr, a.flag, err)
}

func (l listeners) close() {
	for _, x := range l {
		x.Close()
	}
}

// trusting returns the TLS settings of a client that trusts the certificate in a
// file besides those of the system; "" is none.
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
		return nil, errors.New("the file of --ca holds no certificate in PEM")
	}
	return c, nil
}
