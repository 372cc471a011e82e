package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"carstate/internal/admin"
)

type serveCommand struct {
	serveFlags
	Check bool `help:"Check the configuration, print it, and end."`
}

// Help is shown by --help.
func (*serveCommand) Help() string {
	return `Everything listens on this machine only, unless you say otherwise.

Example:
  carstate serve --data-dir /var/lib/carstate
  carstate token issue --developer "Ada Lovelace" --data-dir /var/lib/carstate`
}

// Run runs a node until it is told to end.
func (c *serveCommand) Run(ctx context.Context, w streams) error {
	if c.Check {
		return c.check(w)
	}
	s, err := startService(ctx, &c.serveFlags, c.logger(w), func(address) bool { return false })
	if err != nil {
		return err
	}
	for _, a := range c.addresses() {
		s.log.Info("listening", "for", a.flag[2:], "address", s.ports[a.flag].Addr().String(), "tls", a.tls)
	}
	if s.ports["--admin-addr"] != nil {
		s.log.Info("the console is open", "url", s.url("--admin-addr")+"/", "key", admin.KeyFile(c.DataDir))
	}
	err = s.wait(ctx)
	s.log.Info("ending", "reason", reason(err))
	return errors.Join(err, s.close())
}

func reason(err error) string {
	if err == nil {
		return "asked to"
	}
	return err.Error()
}

// check validates the configuration and prints what would run.
func (c *serveCommand) check(w streams) error {
	if err := c.validate(); err != nil {
		return err
	}
	if _, err := loadTLS(c.TLSCert, c.TLSKey); err != nil {
		return err
	}
	engine := "embedded in " + c.DataDir
	if c.Nats != "" {
		engine = "external" // the addresses may hold a password
	}
	fmt.Fprintf(w.out, "engine %s\nmax-age %s\nretention %s\nsync-interval %s\nmax-feed-age %s\n",
		engine, c.MaxAge, c.Retention, c.SyncInterval, c.MaxFeedAge)
	for _, a := range c.addresses() {
		fmt.Fprintf(w.out, "%s %s tls=%t\n", a.flag[2:], a.addr, a.tls)
	}
	return nil
}

// url is how a client on this machine reaches a port.
func (s *service) url(flag string) string {
	scheme := "http"
	for _, a := range s.flags.addresses() {
		if a.flag == flag && a.tls {
			scheme = "https"
		}
	}
	host, port, _ := net.SplitHostPort(s.ports[flag].Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
