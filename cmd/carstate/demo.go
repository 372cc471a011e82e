package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/lab/demo"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/servicelog"
	"example.org/carstate/internal/vehicle"
)

type demoCommand struct {
	// CARSTATE_DATA_DIR, of serve, must not make the demo write into a user's data.
	DataDir          string `env:"-" placeholder:"DIR" help:"Data directory, which must be new or empty. ${more_data_dir}"`
	Fleet            int    `default:"600" placeholder:"N" help:"Number of simulated cars in traffic besides the recorded one (${default}); 0 for none."`
	WithoutPositions bool   `help:"The simulated cars report no positions."`
	// Readings stay fresh for a day, as long as somebody may try the demo. Log lines would disturb
	// its output. No load balancer needs a drain. The limits suit a process that may open 2,048
	// files.
	nodeFlags `kong:"set='max_age=24h',set='log_level=warn',set='drain=0s',set='query_connections=256',set='ingest_connections=256',set='mqtt_connections=256',set='admin_connections=256'"`
}

func (c *demoCommand) Run(ctx context.Context, w streams, given *kong.Context) (err error) {
	f := &serveFlags{storeFlags{DataDir: c.DataDir}, c.nodeFlags}
	fleet := demo.Fleet(c.Fleet, c.WithoutPositions)
	if c.Fleet < 0 || c.Fleet > mostCars {
		return usageError("--fleet must be between 0 and %d cars", mostCars)
	}
	if c.DataDir == "" {
		if f.DataDir, err = os.MkdirTemp("", "carstate-demo-"); err != nil {
			return fmt.Errorf("a temporary directory cannot be created: %w", err)
		}
		defer demo.RemoveSoon(f.DataDir)
	} else if entries, err := os.ReadDir(c.DataDir); err == nil && len(entries) > 0 {
		return usageError("--data-dir %s is not empty, and the demo must not change existing data: choose a new "+
			"directory, or leave the flag out", c.DataDir)
	}
	config, err := f.node(servicelog.New(w.err, f.LogLevel, f.LogFormat))
	if err != nil {
		return err
	}
	for i, l := range config.Listeners {
		config.Listeners[i].AnyPort = slices.ContainsFunc(given.Flags(),
			func(f *kong.Flag) bool { return f.Name == l.Name && f.Default == l.Addr })
	}
	n, err := startNode(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	service := demo.Service{Query: n.URL(node.QueryAddr), Ingest: n.URL(node.IngestAddr), Ready: n.Ready}
	if service.Trust, err = client.Trusting(f.TLSCert); err != nil {
		return err
	}
	admin := listenerFlags{AdminAddr: n.URL(node.AdminAddr), AdminCA: f.TLSCert}
	if service.Admin, err = (adminFlags{DataDir: f.DataDir, listenerFlags: admin}).client(); err != nil {
		return err
	}
	token, err := service.Prepare(ctx)
	if err != nil {
		return err
	}
	if err := w.show(struct {
		Node *node.Node
		*serveFlags
		Car            vehicle.ID
		Token, KeyFile string
		Fleet          []vehicle.ID
	}{n, f, demo.Vehicle, token, ops.KeyFile(f.DataDir), fleet.IDs()}); err != nil {
		return err
	}
	driving, park := context.WithCancel(ctx)
	var roads sync.WaitGroup
	if c.Fleet > 0 {
		roads.Go(func() {
			if err := service.Drive(driving, fleet); err != nil && driving.Err() == nil {
				fmt.Fprintf(w.err, "carstate: the simulated fleet stopped: %s\n", access.OneLine(err))
			}
		})
	}
	defer roads.Wait()
	defer park()
	// A node that has failed does not drain.
	if err := n.Wait(ctx); err != nil {
		return err
	}
	return n.Drain(context.Background())
}
