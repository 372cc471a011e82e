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
	Partitions     int           `default:"0" help:"Number of partitions of the vehicles; fixed at the first start. 0 means 1, or 64 with --nats."`
	SyncInterval   string        `default:"always" placeholder:"always|DURATION" help:"When acknowledged telemetry is on disk: always, ${more_sync_interval}"`
	StoreMemoryMib int           `default:"128" help:"Memory of the store in MiB (${default}, without --nats): ${more_store_memory_mib}"`
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

// validate rejects a configuration that cannot work, before any port or file is opened.
func (f *serveFlags) validate() error {
	for flag, n := range map[string]int{
		"query": f.QueryConnections, "ingest": f.IngestConnections, "mqtt": f.MqttConnections, "admin": f.AdminConnections,
	} {
		if n < 16 || n > 1e6 {
			return usageError("--%s-connections must be between 16 and 1000000", flag)
		}
	}
	_, networks := netaddr.ParseNetworks(f.TrustedProxies)
	switch alone := f.Nats == ""; {
	case f.DataDir == "":
		return usageError("--data-dir must name a directory")
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return usageError("--tls-cert and --tls-key must be given together")
	case f.MqttTLSAddr != "" && f.TLSCert == "":
		return usageError("--mqtt-tls-addr needs --tls-cert and --tls-key")
	case f.MaxAge <= 0:
		return usageError("--max-age must be a positive duration such as 5m")
	case f.MaxFeedAge < time.Second:
		return usageError("--max-feed-age must be at least 1s: in normal operation copies are up to 1s old")
	case f.Drain < 0 || f.Drain > time.Hour:
		return usageError("--drain must be between 0s and 1h")
	case f.Retention < time.Minute:
		return usageError("--retention must be at least 1m: ingest refuses telemetry when folding lags behind by half of it")
	case f.MaxStretches < 1000 || f.MaxStretches > 1e9:
		return usageError("--max-stretches must be between 1000 and 1000000000; a town has about 20000")
	case f.MaxVehicles < 0 || f.MaxVehicles > 1e9:
		return usageError("--max-vehicles must be between 1 and 1000000000, or 0 for as many as fit into the memory")
	case f.Partitions < 0 || f.Partitions > 4096:
		return usageError("--partitions must be between 1 and 4096")
	case !slices.Contains([]int{0, 1, 3, 5}, f.Replicas):
		return usageError("--replicas must be 1, 3 or 5")
	case !networks:
		return usageError("--trusted-proxies must be a list of networks such as 10.0.0.0/8,fd00::/8, or addresses")
	case strings.ContainsAny(strings.Join(f.AdminHosts, ","), ":/ *"):
		return usageError("--admin-hosts must be host names such as cars.example.org, without ports or patterns")
	case f.AccessLog != "" && !f.has("query"):
		return usageError("--access-log is for a node that answers queries: add query to --roles")
	case len(f.Roles) == 0:
		return usageError("--roles must name at least one of query, ingest, derive, admin")
	case alone && f.NatsCreds != "":
		return usageError("--nats-creds needs --nats")
	case alone && f.NatsFresh:
		return usageError("--nats-fresh needs --nats")
	case alone && f.Replicas > 1:
		return usageError("--replicas needs --nats: one machine keeps one copy")
	case alone && !(f.has("query") && f.has("ingest") && f.has("derive") && f.has("admin")):
		return usageError("--roles needs --nats: a node without a cluster must have all roles")
	case !alone && f.SyncInterval != "always":
		return usageError("--sync-interval and --nats are mutually exclusive: set sync_interval in the NATS " +
			"servers' configuration")
	case !alone && !cluster.ValidURLs(f.Nats):
		return usageError("--nats must be a list of addresses such as tls://host:4222, separated by commas")
	case !f.NatsInsecure && (&cluster.Config{URLs: f.Nats, CredsFile: f.NatsCreds}).LoginInClear():
		return usageError("--nats would send the login without TLS: write tls://, or give --nats-insecure if nobody " +
			"else is in that network")
	}
	for _, l := range f.listeners() {
		if err := l.Check(f.BehindProxy); err != nil {
			return err
		}
	}
	_, err := f.syncInterval()
	return err
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

// syncInterval returns 0 for "always": data is synced to the disk before it is acknowledged.
func (f *serveFlags) syncInterval() (time.Duration, error) {
	if f.SyncInterval == "always" {
		return 0, nil
	}
	d, err := time.ParseDuration(f.SyncInterval)
	if err != nil || d < time.Millisecond {
		return 0, usageError("--sync-interval must be always, or a duration of at least 1ms such as 200ms")
	}
	return d, nil
}

func (f *serveFlags) node(log *slog.Logger, level *slog.LevelVar) (node.Config, error) {
	if err := f.validate(); err != nil {
		return node.Config{}, err
	}
	// In a cluster, a node does not read the records in the data directory, and so would not know
	// their tokens and vehicles.
	if f.Nats != "" && !f.NatsFresh && local.HasRecords(f.DataDir) {
		return node.Config{}, usageError("the data directory %s holds the records of one machine, which --nats "+
			"would leave unused: move them to the cluster as docs/operations.md says under \"Move between one machine "+
			"and a cluster\", or give --nats-fresh to start without them", f.DataDir)
	}
	if f.Nats == "" {
		switch err := local.CheckFormat(f.DataDir, f.Partitions); {
		case errors.Is(err, local.ErrFormat), errors.Is(err, syscall.ENOTDIR):
			return node.Config{}, usageError("%s", err)
		case err != nil:
			return node.Config{}, err
		}
	}
	// validate has parsed these already.
	interval, _ := f.syncInterval()
	proxies, _ := netaddr.ParseNetworks(f.TrustedProxies)
	return node.Config{
		Roles:        f.Roles,
		Listeners:    f.listeners(),
		Store:        store.Config{DataDir: f.DataDir, Partitions: f.Partitions, Retention: f.Retention},
		Local:        local.Config{SyncInterval: interval, MemoryBytes: int64(f.StoreMemoryMib) << 20},
		Cluster:      cluster.Config{URLs: f.Nats, CredsFile: f.NatsCreds, Replicas: f.Replicas},
		MaxAge:       f.MaxAge,
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
