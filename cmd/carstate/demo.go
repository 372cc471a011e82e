package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"carstate/internal/access"
	"carstate/internal/admin/client"
	"carstate/internal/lab/demo"
	"carstate/internal/lab/simulate"
	"carstate/internal/node"
	"carstate/internal/ops"
	"carstate/internal/servicelog"
)

type demoCommand struct {
	// The flag has no environment variable, because CARSTATE_DATA_DIR is a setting of serve,
	// and must not make the demo write into a directory that contains a user's data.
	DataDir          string `env:"-" placeholder:"DIR" help:"Data directory, which must be new or empty. ${more_data_dir}"`
	Fleet            int    `default:"600" placeholder:"N" help:"Number of simulated cars in traffic besides the recorded one (${default}); 0 for none."`
	WithoutPositions bool   `help:"The simulated cars report no positions."`
	nodeFlags
}

// Run runs the demo until a signal ends it. If the demo cannot start, or its node fails, Run
// returns an error.
func (c *demoCommand) Run(ctx context.Context, w streams) (err error) {
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
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	config, err := f.node(servicelog.New(w.err, f.LogLevel, f.LogFormat))
	if err != nil {
		return err
	}
	standard := defaults().listeners()
	for i, l := range config.Listeners {
		config.Listeners[i].AnyPort = slices.ContainsFunc(standard,
			func(d node.Listener) bool { return d.Name == l.Name && d.Addr == l.Addr })
	}
	n, err := node.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	go func() {
		for range hangups {
			n.Reload(config)
		}
	}()
	service, err := demoService(n, f.DataDir, f.TLSCert)
	if err != nil {
		return err
	}
	token, err := service.Prepare(ctx)
	if err != nil {
		return err
	}
	if err := printDemo(w, n, f, token, fleet); err != nil {
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
	// The demo ends at once if the node fails. After a signal, which ends ctx, the node keeps serving
	// for the duration of the flag --drain.
	if err := n.Wait(ctx); err != nil {
		return err
	}
	return n.Drain(context.Background())
}

// demoService returns the addresses of the node n, and the keys and certificates with which the
// demo calls it. The data directory of the node is dataDir. The file of its certificate is tlsCert,
// or "" if it has none.
func demoService(n *node.Node, dataDir, tlsCert string) (demo.Service, error) {
	key, err := ops.LoadKey(dataDir)
	if err != nil {
		return demo.Service{}, err
	}
	trust, err := client.Trusting(tlsCert)
	if err != nil {
		return demo.Service{}, err
	}
	return demo.Service{
		Query: n.URL(node.QueryAddr), Ingest: n.URL(node.IngestAddr), Ready: n.Ready, Trust: trust,
		Admin: &client.Client{URL: n.URL(node.AdminAddr), Key: key, HTTP: client.HTTPClient(trust)},
	}, nil
}

// The URL paths of the two queries, for the driving state and for the throttle system.
const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

func printDemo(w streams, n *node.Node, f *serveFlags, token string, fleet simulate.Config) error {
	var b strings.Builder
	base, trust := n.URL(node.QueryAddr), ""
	if f.TLSCert != "" {
		trust = "--cacert " + f.TLSCert + " "
	}
	fmt.Fprintf(&b, "A recorded drive was replayed: the car is in a traffic jam. Ask:\n\n")
	for _, path := range []string{drivingPath, throttlePath} {
		fmt.Fprintf(&b, "curl %s-G %s%s -d access_token=%s -d vid=%s\n", trust, base, path, token, demo.Vehicle)
	}
	fmt.Fprintf(&b, "\n\"vehicle_runing_state\" is 1 for normal driving, 2 for slow, 3 for a traffic jam; "+
		"\"throttle_system\" is 0 for an anomaly, 1 for normal.\n")
	if ids := fleet.IDs(); len(ids) > 0 {
		fmt.Fprintf(&b, "%d simulated cars are on their way too, from vid %s to %s. Within a minute the console "+
			"shows jams, slow traffic and throttle anomalies.\n", len(ids), ids[0], ids[len(ids)-1])
	}
	if !f.NoDocs {
		fmt.Fprintf(&b, "Documentation, to try in a browser: %s/\n", base)
	}
	fmt.Fprintf(&b, "Telemetry goes to %s", n.URL(node.IngestAddr))
	if a := n.Addr(node.MQTTAddr); a != nil {
		fmt.Fprintf(&b, " or mqtt://%s", a)
	}
	fmt.Fprintf(&b, ".\nConsole: %s/ opens with the key in %s\n", n.URL(node.AdminAddr), ops.KeyFile(f.DataDir))
	fmt.Fprintf(&b, "Operator: %s/metrics and /readyz; carstate status and other commands take --data-dir %s --admin-addr %s\n",
		n.URL(node.AdminAddr), f.DataDir, n.Addr(node.AdminAddr))
	fmt.Fprintf(&b, "End with Ctrl-C.\n")
	_, err := fmt.Fprint(w.out, b.String())
	return err
}
