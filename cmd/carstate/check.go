package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/node"
)

// check returns an error for a configuration that cannot work, or for a data directory whose format
// this version of carstate cannot read. For a valid configuration it prints every setting, the
// source of the setting, and the listeners. It opens no port and changes nothing.
func (c *serveCommand) check(w streams, given *kong.Context) error {
	log := slog.New(slog.NewTextHandler(w.err, nil))
	warnOfUnknown(log, given)
	config, err := c.node(log, nil)
	if err != nil {
		return err
	}
	certificateEnds, err := node.Check(config)
	if err != nil {
		return err
	}
	if err := cmdline.WriteSettings(w.out, given, "help", "check"); err != nil {
		return err
	}
	fmt.Fprintln(w.out)
	return w.show(struct {
		*serveFlags
		Listeners       []node.Listener
		CertificateEnds time.Time
	}{&c.serveFlags, config.Listeners, certificateEnds})
}
