package main

import (
	"bytes"
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"carstate/client"
	"carstate/internal/access"
	adminclient "carstate/internal/admin/client"
	"carstate/internal/lab/drivelog"
	"carstate/internal/lab/sender"
	"carstate/internal/lab/simulate"
	"carstate/internal/node"
	"carstate/internal/ops"
	"carstate/internal/servicelog"
	"carstate/internal/vehicle"
)

// demoDrive is a recorded drive that ends in a traffic jam. The file NOTICE names its author.
//
//go:embed demo_drive.csv.gz
var demoDrive []byte

// demoVehicle is the vehicle id under which the demo sends the recorded drive.
const demoVehicle vehicle.ID = "NHeN4UqVsohGS55I7LBdh"

type demoCommand struct {
	// The flag has no environment variable, because CARSTATE_DATA_DIR is a setting of serve,
	// and must not make the demo write into a directory that contains a user's data.
	DataDir          string `env:"-" placeholder:"DIR" help:"Data directory, which must be new or empty.${more_data_dir}"`
	Fleet            int    `default:"200" placeholder:"N" help:"Number of simulated cars in traffic besides the recorded one (${default}); 0 for none."`
	WithoutPositions bool   `help:"The simulated cars report no positions."`
	nodeFlags
}

// Help returns what --help shows.
func (*demoCommand) Help() string {
	return `Stores its data in a new temporary directory, which is removed when the demo ends.
Accepts the flags of serve; a default port that is in use is replaced by a free one.
By default, readings stay fresh for 24 h, so that the recorded drive is answered for as long as
you try it, and only warnings are logged.

Example:
  carstate demo
  carstate demo --fleet 1000`
}

// Run runs the demo until a signal ends it.
func (c *demoCommand) Run(ctx context.Context, w streams) (err error) {
	f := &serveFlags{storeFlags{DataDir: c.DataDir}, c.nodeFlags}
	fleet := demoFleet(c.Fleet, c.WithoutPositions)
	if c.Fleet < 0 || c.Fleet > mostCars {
		return usageError("--fleet must be between 0 and %d cars", mostCars)
	}
	if c.DataDir == "" {
		if f.DataDir, err = os.MkdirTemp("", "carstate-demo-"); err != nil {
			return fmt.Errorf("a temporary directory cannot be created: %w", err)
		}
		defer removeSoon(f.DataDir)
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
	s := demoNode{n, f}
	token, err := prepareDemo(ctx, s)
	if err != nil {
		return err
	}
	if err := printDemo(w, s, token, fleet); err != nil {
		return err
	}
	if c.Fleet == 0 {
		return s.untilAsked(ctx)
	}
	driving, park := context.WithCancel(ctx)
	var roads sync.WaitGroup
	roads.Go(func() {
		if err := driveDemo(driving, s, fleet); err != nil {
			fmt.Fprintf(w.err, "carstate: the simulated fleet stopped: %s\n", access.OneLine(err))
		}
	})
	defer roads.Wait()
	defer park()
	return s.untilAsked(ctx)
}

// untilAsked waits until a signal ends the demo or the node fails. After a signal, the node keeps
// serving for the duration in the flag --drain.
func (s demoNode) untilAsked(ctx context.Context) error {
	if err := s.Wait(ctx); err != nil {
		return err
	}
	return s.Drain(context.Background())
}

// removeSoon removes the data directory of a node that has just ended. It retries for 2 s, because
// the storage engine may still create a file while it ends.
func removeSoon(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	// If it fails, the system cleans up its temporary directory at some time.
	_ = poll(ctx, func() error { return os.RemoveAll(dir) })
}

// demoNode is the demo's node and the flags with which it was started.
type demoNode struct {
	*node.Node
	flags *serveFlags
}

// demoFleet describes a simulated fleet in which at any time some cars have a throttle fault. A
// fault lasts about ten minutes.
func demoFleet(cars int, withoutPositions bool) simulate.Config {
	return simulate.Config{
		Vehicles: cars, Rate: 1, Seed: 1, Faults: max(0.2, 40/float64(max(1, cars))), FreeFlow: true,
		WithoutPositions: withoutPositions, Prefix: "SIM",
	}
}

// driveDemo simulates a fleet until ctx ends: it sends the fleet's telemetry to the ingest
// listener, and queries the verdicts. Before that, it sends an hour of light traffic, dated in the
// past, from which the service learns how fast the roads are when they are free. The time of the
// simulation also begins in the past, and runs faster than the clock until it reaches the present.
// So the demo soon has cars in every driving state.
func driveDemo(ctx context.Context, s demoNode, fleet simulate.Config) error {
	fleet.Backdate = simulate.Mixed(fleet)
	operator, trust, err := s.operator()
	if err != nil {
		return err
	}
	cars := access.VehicleSet(fleet.IDs()...)
	return sender.WithSource(ctx, operator, "demo", cars, sender.EndlessLife, func(as sender.Login) error {
		return sender.WithToken(ctx, operator, "demo-fleet", cars, sender.EndlessLife, func(token string) error {
			fleet.Developer = client.New(s.URL(node.QueryAddr), token, client.WithHTTPClient(clientTrusting(trust)),
				client.WithPatience(0))
			var doors []sender.Sender
			for range simulate.Doors {
				door := sender.HTTP(s.URL(node.IngestAddr), as, trust)
				defer door.Close()
				doors = append(doors, door)
			}
			if err := simulate.Teach(ctx, doors[0], &fleet); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			return simulate.New(fleet).Run(ctx, doors...)
		})
	})
}

// operator returns a client of the demo node's admin API, and TLS settings that trust the node's
// certificate.
func (s demoNode) operator() (*adminclient.Client, *tls.Config, error) {
	key, err := ops.LoadKey(s.flags.DataDir)
	if err != nil {
		return nil, nil, err
	}
	trust, err := trusting(s.flags.TLSCert)
	if err != nil {
		return nil, nil, err
	}
	return &adminclient.Client{URL: s.URL(node.AdminAddr), Key: key, HTTP: clientTrusting(trust)}, trust, nil
}

// prepareDemo sends the recorded drive to the ingest listener, issues a token for queries, and
// waits until the service has processed the whole drive. It returns the token.
func prepareDemo(ctx context.Context, s demoNode) (token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	drive, err := drivelog.Read(bytes.NewReader(demoDrive), "the bundled drive")
	if err != nil {
		return "", err
	}
	operator, trust, err := s.operator()
	if err != nil {
		return "", err
	}
	if err := poll(ctx, s.Ready); err != nil {
		return "", err
	}
	samples := sender.Samples([]*drivelog.Drive{drive}, demoVehicle)
	sender.Shift(samples, vehicle.At(time.Now()))
	err = sender.WithSource(ctx, operator, "demo", access.VehicleSet(demoVehicle), sender.TemporaryLife,
		func(as sender.Login) error {
			door := sender.HTTP(s.URL(node.IngestAddr), as, trust)
			defer door.Close()
			return sender.All(ctx, door, samples, func(int) {})
		})
	if err != nil {
		return "", err
	}
	issued, err := operator.IssueToken(ctx, access.TokenRequest{
		Developer: "demo", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
		Expires: time.Now().Add(access.DefaultTokenLife),
	})
	if err != nil {
		return "", err
	}
	// The whole drive has been folded once the driving verdict is as new as the last speed
	// reading.
	end := lastSpeed(samples)
	developer := client.New(s.URL(node.QueryAddr), issued.AccessToken,
		client.WithHTTPClient(clientTrusting(trust)), client.WithPatience(0)) // poll retries
	if err := poll(ctx, func() error { return answered(ctx, developer, end) }); err != nil {
		return "", err
	}
	return issued.AccessToken, nil
}

// The URL paths of the two queries, for the driving state and for the throttle system.
const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

// lastSpeed returns the time of the last sample that has a speed.
func lastSpeed(samples []vehicle.Sample) time.Time {
	for i := len(samples) - 1; i >= 0; i-- {
		if x := &samples[i]; x.Has(vehicle.Speed) || x.Has(vehicle.OBDSpeed) {
			return x.Time.Time()
		}
	}
	return time.Time{}
}

// answered returns nil if the driving verdict about the demo's car is at least as new as the
// parameter since, compared in whole seconds, and otherwise an error.
func answered(ctx context.Context, service *client.Client, since time.Time) error {
	a, err := service.CarDrivingState(ctx, string(demoVehicle))
	if err != nil {
		return fmt.Errorf("the query listener does not answer: %w", err)
	}
	if a.AsOf.Before(since.Truncate(time.Second)) {
		return fmt.Errorf("the query listener has no new answer yet: %s", a)
	}
	return nil
}

// poll calls ask every 20 ms until it returns nil. If ctx ends first, poll returns the last error
// of ask.
func poll(ctx context.Context, ask func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func printDemo(w streams, s demoNode, token string, fleet simulate.Config) error {
	var b strings.Builder
	base, trust := s.URL(node.QueryAddr), ""
	if s.flags.TLSCert != "" {
		trust = "--cacert " + s.flags.TLSCert + " "
	}
	fmt.Fprintf(&b, "A recorded drive was replayed: the car is in a traffic jam. Ask:\n\n")
	for _, path := range []string{drivingPath, throttlePath} {
		fmt.Fprintf(&b, "curl %s-G %s%s -d access_token=%s -d vid=%s\n", trust, base, path, token, demoVehicle)
	}
	fmt.Fprintf(&b, "\n\"vehicle_runing_state\" is 1 for normal driving, 2 for slow, 3 for a traffic jam; "+
		"\"throttle_system\" is 0 for an anomaly, 1 for normal.\n")
	if ids := fleet.IDs(); len(ids) > 0 {
		fmt.Fprintf(&b, "%d simulated cars are on their way too, from vid %s to %s. Within a minute the console "+
			"shows jams, slow traffic and throttle anomalies.\n", len(ids), ids[0], ids[len(ids)-1])
	}
	if !s.flags.NoDocs {
		fmt.Fprintf(&b, "Documentation, to try in a browser: %s/\n", base)
	}
	fmt.Fprintf(&b, "Telemetry goes to %s", s.URL(node.IngestAddr))
	if a := s.Addr(node.MQTTAddr); a != nil {
		fmt.Fprintf(&b, " or mqtt://%s", a)
	}
	fmt.Fprintf(&b, ".\nConsole: %s/ opens with the key in %s\n", s.URL(node.AdminAddr), ops.KeyFile(s.flags.DataDir))
	fmt.Fprintf(&b, "Operator: %s/metrics and /readyz; commands take --data-dir %s --admin-addr %s\n",
		s.URL(node.AdminAddr), s.flags.DataDir, s.Addr(node.AdminAddr))
	fmt.Fprintf(&b, "End with Ctrl-C.\n")
	_, err := fmt.Fprint(w.out, b.String())
	return err
}
