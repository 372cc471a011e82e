package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
)

// TestNATSConfig starts three servers with the configuration that we ship, each
// on a port of its own, and a node on them: what it acknowledges is answered.
func TestNATSConfig(t *testing.T) {
	const password = "inTheTestOnly"
	t.Setenv("NATS_PASSWORD", password)
	for i := range 3 {
		t.Setenv(fmt.Sprintf("NATS_ROUTE_%d", i+1), fmt.Sprintf("nats-route://route:%s@nats-%d:6222", password, i+1))
	}
	var urls []string
	var routes []string
	for i := range 3 {
		o, err := nats.ProcessConfigFile(deployDir + "/nats/nats.conf")
		if err != nil {
			t.Fatal(err)
		}
		if !o.SyncAlways || o.StoreDir != "/data" || len(o.Routes) != 3 || o.Cluster.Port != 6222 || o.Port != 4222 {
			t.Fatalf("the configuration was not understood: %+v", o)
		}
		o.ServerName, o.StoreDir, o.NoSigs = fmt.Sprintf("nats-%d", i+1), t.TempDir(), true
		o.Host, o.Port, o.Cluster.Host, o.Cluster.Port = "127.0.0.1", -1, "127.0.0.1", -1
		o.Routes = nats.RoutesFromStr(strings.Join(routes, ","))
		s, err := nats.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("a NATS server does not start")
		}
		routes = append(routes, fmt.Sprintf("nats-route://route:%s@%s", password, s.ClusterAddr()))
		urls = append(urls, fmt.Sprintf("nats://carstate:%s@%s", password, s.Addr().(*net.TCPAddr)))
	}
	dir := t.TempDir()
	flags := []string{"--nats", strings.Join(urls, ","), "--partitions", "4", "--max-age", "24h"}
	var p *process
	// As its supervisor does: until the servers have chosen a leader, it ends.
	if err := until(2*time.Minute, func() (err error) {
		p, err = startProcess(dir, nil, flags...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	token := p.issue(t)
	p.carstate(t, "replay", "demo_drive.csv.gz", "--vid", "clustered")
	if err := until(time.Minute, func() error {
		a, err := p.ask(drivingPath, token, "clustered")
		if err == nil && a.status != 1 {
			err = fmt.Errorf("no answer: %+v", a)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(p.log.String(), password) {
		t.Errorf("the password is in the log:\n%s", p.log)
	}
	p.stop(t)
	// Nobody gets in with the node's name alone.
	stranger := strings.Replace(urls[0], password, "guess", 1)
	if _, err := startProcess(t.TempDir(), nil, "--nats", stranger); err == nil || strings.Contains(err.Error(), "guess") || strings.Contains(err.Error(), "did not listen") {
		t.Errorf("with a wrong password: %v", err)
	}
}
