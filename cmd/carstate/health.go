package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"carstate/internal/admin/client"
)

// healthCommand requests a health probe of the admin listener: /readyz or /healthz. It exists
// because a container image without a shell has no other tool for this request.
type healthCommand struct {
	AdminAddr string        `default:"127.0.0.1:8082" placeholder:"ADDR" help:"The service's admin listener (${default}); may be a URL."`
	AdminCA   string        `name:"admin-ca" placeholder:"FILE" help:"Trust this certificate (PEM) of the admin listener in addition to the system's."`
	Live      bool          `help:"Check whether a restart would help (/healthz), not whether the node does its work (/readyz)."`
	Timeout   time.Duration `default:"5s" help:"How long to wait for the answer, such as 5s (${default})."`
}

// Run requests the probe once. It prints the first line of the response if the node is healthy or
// ready. Otherwise, and if there is no response within --timeout, it returns an error.
func (c *healthCommand) Run(ctx context.Context, w streams) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	base, err := adminURL(c.AdminAddr)
	if err != nil {
		return err
	}
	if _, err := url.Parse(base); err != nil {
		return errAdminAddr
	}
	trust, err := client.Trusting(c.AdminCA)
	if err != nil {
		return err
	}
	admin := client.Client{URL: base, HTTP: client.HTTPClient(trust)}
	line, err := admin.Probe(ctx, c.Live)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w.out, line)
	return err
}
