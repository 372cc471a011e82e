package main

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/internal/netaddr"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/cluster/natsconn"
	"example.org/carstate/internal/store/local"
)

type serveFlags struct {
	storeFlags
	nodeFlags `kong:"set='max_age=5m',set='log_level=info',set='drain=5s',set='query_connections=16384',set='ingest_connections=4096',set='mqtt_connections=20000',set='admin_connections=512'"`
}

type storeFlags struct {
	DataDir      string `default:"./carstate-data" placeholder:"DIR" help:"Directory of all stored data (${default})."`
	Nats         string `placeholder:"URL,…" help:"Use an external NATS cluster instead of the store on this machine."`
	NatsFresh    bool   `help:"With --nats: start on the cluster although the data directory holds the records of one machine, which stay there unused."`
	NatsInsecure bool   `help:"Permit --nats to send a login without TLS to another machine, in a network that nobody else is in."`
	NatsCreds    string `placeholder:"FILE" help:"Credentials file for --nats."`
	Replicas     int    `default:"0" help:"Copies of every stream on the cluster: 1, 3 or 5, and not fewer than there are. ${more_replicas}"`
}

type nodeFlags struct {
	QueryAddr   string `default:"127.0.0.1:8080" placeholder:"ADDR" help:"Address for the queries of developers (${default})."`
	IngestAddr  string `default:"127.0.0.1:8081" placeholder:"ADDR" help:"Address for the telemetry of cars and gateways by HTTP (${default})."`
	MqttAddr    string `default:"127.0.0.1:1883" placeholder:"ADDR" help:"Address for the telemetry of cars and gateways by MQTT (${default}); empty: none."`
	MqttTLSAddr string `name:"mqtt-tls-addr" placeholder:"ADDR" help:"Address for telemetry by MQTT over TLS; needs --tls-cert."`
	AdminAddr   string `default:"127.0.0.1:8082" placeholder:"ADDR" help:"Address for operators: console, API, health, metrics (${default}). ${more_admin_addr}"`

	MaxAge         time.Duration `default:"${max_age}" help:"Maximum age of the readings that answer a query (${default})."`
	Retention      time.Duration `default:"1h" help:"How long telemetry is kept after it was folded into states (${default})."`
	Checkpoint     time.Duration `default:"0s" help:"Interval at which changed states are stored. 0s means 10s, or 30s with --nats. ${more_checkpoint}"`
	Partitions     int           `default:"0" help:"Number of partitions of the vehicles; fixed at the first start. 0 means 1, or 64 with --nats."`
	SyncInterval   string        `default:"always" placeholder:"always|DURATION" help:"When acknowledged telemetry is on disk: always, ${more_sync_interval}"`
	StoreMemoryMib int           `default:"32" help:"Memory of the store in MiB (${default}, without --nats): ${more_store_memory_mib}"`
	MaxFeedAge     time.Duration `default:"60s" help:"How long queries are answered without contact to the engine (${default})."`

	Drain time.Duration `default:"${drain}" help:"How long a node keeps serving after a signal to end (${default}). ${more_drain}"`

	QueryConnections  int `default:"${query_connections}" help:"Maximum number of connections of developers (${default}). ${more_query_connections}"`
	IngestConnections int `default:"${ingest_connections}" help:"Maximum number of connections for telemetry by HTTP (${default}). ${more_ingest_connections}"`
	MqttConnections   int `default:"${mqtt_connections}" help:"Maximum number of connections for telemetry by MQTT (${default}). ${more_mqtt_connections}"`
	AdminConnections  int `default:"${admin_connections}" help:"Maximum number of connections to the admin listener (${default}). ${more_admin_connections}"`

	AdminHosts []string `placeholder:"NAME,…" help:"Host names by which the admin listener is reached. ${more_admin_hosts}"`

	MaxStretches int `default:"5000000" help:"Maximum number of stretches of road that a node learns (${default}). ${more_max_stretches}"`

	MaxVehicles int `default:"0" help:"Maximum number of known vehicles; samples of further ones are refused and counted. ${more_max_vehicles}"`

	Roles []string `default:"query,ingest,derive,admin" enum:"query,ingest,derive,admin" help:"Roles of this node (${default})."`

	NoDocs bool `help:"Serve no documentation on the listeners of queries and telemetry."`

	TLSCert     string `name:"tls-cert" placeholder:"FILE" help:"Certificate chain (PEM). ${more_tls_cert}"`
	TLSKey      string `name:"tls-key" placeholder:"FILE" help:"Key of the certificate (PEM)."`
	BehindProxy bool   `help:"A proxy in front terminates TLS, so listeners that are not on loopback need none."`

	TrustedProxies []string `placeholder:"CIDR,…" help:"Networks of the proxies in front. ${more_trusted_proxies}"`

	AccessLog string `placeholder:"FILE|-" help:"Write one line for each query to this file, or to standard output (-). ${more_access_log}"`

	LogLevel  string `default:"${log_level}" enum:"debug,info,warn,error" help:"debug, info, warn or error (${default})."`
	LogFormat string `default:"text" enum:"text,json" help:"text or json (${default})."`
}

func (f *serveFlags) validate() error {
	for flag, n := range map[string]int{
		"query": f.QueryConnections, "ingest": f.IngestConnections, "mqtt": f.MqttConnections, "admin": f.AdminConnections,
	} {
		if n < 16 || n > 1e6 {
			return usageError("--%s-connections must be between 16 and 1000000", flag)
		}
	}
	_, networks := netaddr.ParseNetworks(f.TrustedProxies)
	alone, all := f.Nats == "", f.has("query") && f.has("ingest") && f.has("derive") && f.has("admin")
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{f.DataDir == "", "--data-dir must name a directory"},
		{(f.TLSCert == "") != (f.TLSKey == ""), "--tls-cert and --tls-key must be given together"},
		{f.MqttTLSAddr != "" && f.TLSCert == "", "--mqtt-tls-addr needs --tls-cert and --tls-key"},
		{f.MaxAge <= 0, "--max-age must be a positive duration such as 5m"},
		{f.MaxFeedAge < time.Second, "--max-feed-age must be at least 1s: in normal operation copies are up to 1s old"},
		{f.Drain < 0 || f.Drain > time.Hour, "--drain must be between 0s and 1h"},
		{f.Retention < time.Minute,
			"--retention must be at least 1m: ingest refuses telemetry when folding lags behind by half of it"},
		{f.Checkpoint != 0 && (f.Checkpoint < 100*time.Millisecond || f.Checkpoint > 10*time.Minute),
			"--checkpoint must be between 100ms and 10m"},
		{f.MaxStretches < 1000 || f.MaxStretches > 1e9,
			"--max-stretches must be between 1000 and 1000000000; a town has about 20000"},
		{f.MaxVehicles < 0 || f.MaxVehicles > 1e9,
			"--max-vehicles must be between 1 and 1000000000, or 0 for as many as fit into the memory"},
		{f.Partitions < 0 || f.Partitions > 4096, "--partitions must be between 1 and 4096"},
		{!slices.Contains([]int{0, 1, 3, 5}, f.Replicas), "--replicas must be 1, 3 or 5"},
		{!networks, "--trusted-proxies must be a list of networks such as 10.0.0.0/8,fd00::/8, or addresses"},
		{strings.ContainsAny(strings.Join(f.AdminHosts, ","), ":/ *"),
			"--admin-hosts must be host names such as cars.example.org, without ports or patterns"},
		{f.AccessLog != "" && !f.has("query"), "--access-log is for a node that answers queries: add query to --roles"},
		{len(f.Roles) == 0, "--roles must name at least one of query, ingest, derive, admin"},
		{alone && f.NatsCreds != "", "--nats-creds needs --nats"},
		{alone && f.NatsFresh, "--nats-fresh needs --nats"},
		{alone && f.Replicas > 1, "--replicas needs --nats: one machine keeps one copy"},
		{alone && !all, "--roles needs --nats: a node without a cluster must have all roles"},
		{!alone && f.SyncInterval != "always",
			"--sync-interval and --nats are mutually exclusive: set sync_interval in the NATS servers' configuration"},
		{!alone && !natsconn.ValidURLs(f.Nats),
			"--nats must be a list of addresses such as tls://host:4222, separated by commas"},
		{f.SyncInterval != "always" && f.syncInterval() < time.Millisecond,
			"--sync-interval must be always, or a duration of at least 1ms such as 200ms"},
		{!f.NatsInsecure && natsconn.LoginInClear(f.Nats, f.NatsCreds),
			"--nats would send the login without TLS: write tls://, or give --nats-insecure if nobody else is in that network"},
	} {
		if rule.broken {
			return usageError("%s", rule.text)
		}
	}
	for _, l := range f.listeners() {
		if err := l.Check(f.BehindProxy); err != nil {
			return err
		}
	}
	return nil
}

func (f *serveFlags) listeners() []node.Listener {
	return node.Listeners(f.Roles, f.TLSCert != "", map[string]string{
		node.QueryAddr: f.QueryAddr, node.IngestAddr: f.IngestAddr, node.MQTTAddr: f.MqttAddr,
		node.MQTTTLSAddr: f.MqttTLSAddr, node.AdminAddr: f.AdminAddr,
	})
}

func (f *serveFlags) has(role string) bool {
	return slices.Contains(f.Roles, role)
}

// syncInterval returns 0 for "always", as for any other text that is no duration: data is synced to
// the disk before it is acknowledged.
func (f *serveFlags) syncInterval() time.Duration {
	d, _ := time.ParseDuration(f.SyncInterval)
	return d
}

func (f *serveFlags) node(log *slog.Logger, level *slog.LevelVar) (node.Config, error) {
	if err := f.validate(); err != nil {
		return node.Config{}, err
	}
	// In a cluster, a node would not know the tokens and vehicles in the data directory.
	if f.Nats != "" && !f.NatsFresh && local.HasRecords(f.DataDir) {
		return node.Config{}, usageError("the data directory %s holds the records of one machine, which --nats "+
			"would leave unused: move them to the cluster as docs/operations.md says under \"Move between one machine "+
			"and a cluster\", or give --nats-fresh to start without them", f.DataDir)
	}
	if f.Nats == "" {
		switch err := local.CheckFormat(f.DataDir, f.Partitions); {
		case errors.Is(err, syscall.ENOTDIR):
			return node.Config{}, usageError("%s", err)
		case err != nil:
			return node.Config{}, err
		}
	}
	proxies, _ := netaddr.ParseNetworks(f.TrustedProxies) // validate has refused wrong ones
	return node.Config{
		Roles:        f.Roles,
		Listeners:    f.listeners(),
		Store:        store.Config{DataDir: f.DataDir, Partitions: f.Partitions, Retention: f.Retention},
		Local:        local.Config{SyncInterval: f.syncInterval(), MemoryBytes: int64(f.StoreMemoryMib) << 20},
		Cluster:      cluster.Config{URLs: f.Nats, CredsFile: f.NatsCreds, Replicas: f.Replicas},
		MaxAge:       f.MaxAge,
		Checkpoint:   f.Checkpoint,
		MaxFeedAge:   f.MaxFeedAge,
		MaxStretches: f.MaxStretches,
		MaxVehicles:  f.MaxVehicles,

		QueryConnections:  f.QueryConnections,
		IngestConnections: f.IngestConnections,
		MQTTConnections:   f.MqttConnections,
		AdminConnections:  f.AdminConnections,

		NoDocs:         f.NoDocs,
		AdminHosts:     f.AdminHosts,
		TrustedProxies: proxies,
		TLSCert:        f.TLSCert,
		TLSKey:         f.TLSKey,
		AccessLog:      f.AccessLog,
		LogJSON:        f.LogFormat == "json",
		Version:        version,
		Log:            log,
		LogLevel:       level,
		Drain:          f.Drain,
	}, nil
}
