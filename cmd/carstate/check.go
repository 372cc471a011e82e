package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	"carstate/internal/netaddr"
	"carstate/internal/node"
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
	if err := c.settings.WriteTable(w.out, given); err != nil {
		return err
	}
	c.printListeners(w.out, config.Listeners, certificateEnds)
	return nil
}

// printListeners prints as text which storage engine stores the data, the address of each listener
// and whether it uses TLS, and when the certificate expires. If there is no certificate,
// certificateEnds is the zero time, and nothing is printed about it.
func (c *serveCommand) printListeners(out io.Writer, listeners []node.Listener, certificateEnds time.Time) {
	engine := "this machine's own, in " + c.DataDir
	if c.Nats != "" {
		engine = "an external NATS cluster"
	}
	fmt.Fprintf(out, "\nengine: %s\n", engine)
	for _, l := range listeners {
		how := "without TLS, on this machine only"
		switch {
		case l.TLS:
			how = "with TLS"
		case !netaddr.IsLoopback(l.Addr):
			how = "without TLS, behind a proxy that terminates TLS"
		}
		fmt.Fprintf(out, "%s: %s, %s\n", l.Name, l.Addr, how)
	}
	if !certificateEnds.IsZero() {
		fmt.Fprintf(out, "certificate: until %s\n", certificateEnds.UTC().Format(time.RFC3339))
	}
}
