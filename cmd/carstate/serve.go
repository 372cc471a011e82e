package main

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/alecthomas/kong"

	"carstate/internal/admin"
)

type serveCommand struct {
	serveFlags
	Config string `placeholder:"FILE" help:"Settings, one name = value a line, named as these flags are. Flags and environment count for more."`
	Check  bool   `help:"Check the configuration, print it and where each value comes from, and end."`

	file configFile // of Config
}

// Help is shown by --help.
func (*serveCommand) Help() string {
	return `Everything listens on this machine only, unless you say otherwise.

Example:
  carstate serve --data-dir /var/lib/carstate
  carstate token issue --developer "Ada Lovelace" --data-dir /var/lib/carstate
  carstate serve --config /etc/carstate/carstate.conf --check`
}

// BeforeResolve reads the configuration file, whichever way it was named.
func (c *serveCommand) BeforeResolve(given *kong.Context) error {
	flags := given.Selected().Flags
	i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == "config" })
	name, _ := given.FlagValue(flags[i]).(string)
	if name == "" {
		return nil
	}
	file, err := loadConfigFile(name, flags)
	if err != nil {
		return err
	}
	c.file = file
	given.AddResolver(file)
	return nil
}

// Run runs a node until it is told to end.
func (c *serveCommand) Run(ctx context.Context, w streams, given *kong.Context) error {
	if c.Check {
		return c.check(w, given)
	}
	s, err := startService(ctx, &c.serveFlags, c.logger(w), func(address) bool { return false })
	if err != nil {
		return err
	}
	if c.loginInClear() {
		s.log.Warn("--nats carries the login without TLS: write tls:// unless nobody else is in that network")
	}
	for _, a := range c.addresses() {
		s.log.Info("listening", "for", a.flag[2:], "address", s.ports[a.flag].Addr().String(), "tls", a.tls)
	}
	if c.has("admin") {
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
