package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
	"carstate/internal/drivelog"
	"carstate/internal/vehicle"
)

// demoDrive is a recorded drive that ends in a traffic jam; NOTICE says whose.
//
//go:embed demo_drive.csv.gz
var demoDrive []byte

// demoVehicle is the vid under which the drive is replayed.
const demoVehicle vehicle.ID = "NHeN4UqVsohGS55I7LBdh"

type demoCommand struct {
	serveFlags
}

// Help is shown by --help.
func (*demoCommand) Help() string {
	return `Keeps everything in a new temporary directory, which goes when the demo ends.
Takes serve's flags; a default port that is busy is replaced by a free one.

Example:
  carstate demo`
}

// demoMaxAge lets the recorded drive answer for as long as somebody may want to
// try, where the default of serve would call it stale after minutes.
const demoMaxAge = 24 * time.Hour

// Run runs the demo until it is told to end.
func (c *demoCommand) Run(ctx context.Context, w streams) (err error) {
	def := defaults()
	if c.DataDir == def.DataDir {
		dir, err := os.MkdirTemp("", "carstate-demo-")
		if err != nil {
			return fmt.Errorf("no temporary directory can be made: %w", err)
		}
		defer os.RemoveAll(dir)
		c.DataDir = dir
	}
	if c.MaxAge == def.MaxAge {
		c.MaxAge = demoMaxAge
	}
	if c.LogLevel == def.LogLevel {
		c.LogLevel = "warn" // what the demo has to say must not drown
	}
	standard := make(map[string]string)
	for _, a := range def.addresses() {
		standard[a.flag] = a.addr
	}
	s, err := startService(ctx, &c.serveFlags, c.logger(w), func(a address) bool { return standard[a.flag] == a.addr })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	token, err := c.prepare(ctx, s)
	if err != nil {
		return err
	}
	printDemo(w, s, token)
	return s.wait(ctx)
}

// prepare replays the drive through the front door, issues a token, and waits
// until both questions are answered.
func (c *demoCommand) prepare(ctx context.Context, s *service) (token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	drive, err := drivelog.Read(bytes.NewReader(demoDrive), "the bundled drive")
	if err != nil {
		return "", err
	}
	key, err := admin.LoadKey(c.DataDir)
	if err != nil {
		return "", err
	}
	client := &admin.Client{URL: s.url("--admin-addr"), Key: key}
	if err := poll(ctx, func() error { return s.health.ready() }); err != nil {
		return "", err
	}
	source, err := client.AddSource(ctx, "demo", access.VehicleSet(demoVehicle), time.Time{})
	if err != nil {
		return "", err
	}
	samples := samplesOf([]*drivelog.Drive{drive}, demoVehicle)
	shift(samples, vehicle.At(time.Now()))
	sender := newHTTPSender(s.url("--ingest-addr"), source.Key)
	defer sender.close()
	if err := sendAll(ctx, sender, samples, newProgress(io.Discard, len(samples))); err != nil {
		return "", err
	}
	issued, err := client.IssueToken(ctx, access.TokenRequest{
		Developer: "demo", Operations: access.AllOperations, Vehicles: access.AllVehicles(), Expires: time.Now().Add(access.DefaultTokenLife),
	})
	if err != nil {
		return "", err
	}
	// The drive is judged to its end once the driving verdict is as new as
	// the last speed.
	end := lastSpeed(samples)
	if err := poll(ctx, func() error { return answered(ctx, s, drivingPath, issued.AccessToken, end) }); err != nil {
		return "", err
	}
	return issued.AccessToken, nil
}

// The paths of the two operations.
const (
	drivingPath  = "/api/ic/if_dt_tflow_car_driving_state"
	throttlePath = "/api/ic/if_dt_amo_throttle_system"
)

// lastSpeed is the time of the newest speed reading.
func lastSpeed(samples []vehicle.Sample) time.Time {
	for i := len(samples) - 1; i >= 0; i-- {
		if x := &samples[i]; x.Has(vehicle.Speed) || x.Has(vehicle.OBDSpeed) {
			return x.Time.Time()
		}
	}
	return time.Time{}
}

// answered asks the running service about the demo's car and wants a verdict
// that is as new as since, to the second.
func answered(ctx context.Context, s *service, path, token string, since time.Time) error {
	q := url.Values{"access_token": {token}, "vid": {string(demoVehicle)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("--query-addr")+path+"?"+q.Encode(), nil)
	if err != nil {
		return errors.New("the query listener has no usable address")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return errors.New("the query listener does not answer") // the error holds the token
	}
	defer resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err != nil || at.Before(since.Truncate(time.Second)) {
		return fmt.Errorf("the query listener has no answer yet (HTTP %d)", resp.StatusCode)
	}
	return nil
}

// poll asks until there is no error, or says the last one when ctx ends.
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

func printDemo(w streams, s *service, token string) {
	base := s.url("--query-addr")
	fmt.Fprintf(w.out, "A recorded drive was replayed: the car is in a traffic jam. Ask:\n\n")
	for _, path := range []string{drivingPath, throttlePath} {
		fmt.Fprintf(w.out, "curl -G %s%s -d access_token=%s -d vid=%s\n", base, path, token, demoVehicle)
	}
	fmt.Fprintf(w.out, "\n\"vehicle_runing_state\" is 1 for normal driving, 2 for slow, 3 for a traffic jam; \"throttle_system\" is 0 for an anomaly, 1 for normal.\n")
	if !s.flags.NoDocs {
		fmt.Fprintf(w.out, "Documentation, to try in a browser: %s/\n", base)
	}
	fmt.Fprintf(w.out, "Operator: %s/metrics and /readyz; commands take --data-dir %s --admin-addr %s\n",
		s.url("--admin-addr"), s.flags.DataDir, s.ports["--admin-addr"].Addr())
	fmt.Fprintf(w.out, "End with Ctrl-C.\n")
}
