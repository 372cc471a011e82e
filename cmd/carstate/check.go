package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/node"
)

// check prints the configuration, opens no port and changes nothing.
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
