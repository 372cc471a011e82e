package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"example.org/carstate/internal/netaddr"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/store/local"
)

// Config holds the settings of a node, from flags that the caller has checked. [Start] itself
// checks only what depends on the machine: ports, files and the store.
type Config struct {
	Roles     []string   // without a cluster, all of them
	Listeners []Listener // that these roles need

	// Its data directory also holds the admin key. Start sets its Log, Registry and Newer.
	Store store.Config
	// If Cluster has no URLs, Local configures the engine of one machine. Start sets the Config in
	// each.
	Cluster cluster.Config
	Local   local.Config

	MaxAge     time.Duration // of a reading in an answer
	Checkpoint time.Duration // interval at which changed states are stored
	MaxFeedAge time.Duration // how long queries are answered without contact to the engine

	Drain time.Duration // how long Drain keeps serving

	MaxStretches int // that the map learns
	// At MaxVehicles, the node refuses new vehicles. 0 means a limit by the memory, or none on a
	// node with neither the query nor the admin role.
	MaxVehicles int

	// The two MQTT listeners share one limit. Start lowers these if the process may not open enough
	// files.
	QueryConnections, IngestConnections, MQTTConnections, AdminConnections int

	NoDocs         bool           // serve no documentation beside the queries and the telemetry
	AdminHosts     []string       // that the admin listener accepts, besides localhost
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is trusted

	TLSCert, TLSKey string // PEM files; if empty, no listener speaks TLS

	AccessLog string // file; "-" is standard output, "" disables the log
	LogJSON   bool

	Version string
	Log     *slog.Logger
	// Operators can change the level while the node runs.
	LogLevel *slog.LevelVar
}

// The roles of a node.
const (
	Query  = "query"
	Ingest = "ingest"
	Derive = "derive" // folds telemetry into states
	Admin  = "admin"  // serves operators
)

type Listener struct {
	Name    string // one of the names below
	Addr    string // host and port
	TLS     bool
	AnyPort bool // if the port is in use, use a free one instead
}

// The names of the listeners, which equal the names of their flags.
const (
	QueryAddr   = "query-addr"
	IngestAddr  = "ingest-addr"
	MQTTAddr    = "mqtt-addr"
	MQTTTLSAddr = "mqtt-tls-addr"
	AdminAddr   = "admin-addr"
)

// Listeners returns the listeners that a node with these roles needs. cert says whether it has a
// certificate.
func Listeners(roles []string, cert bool, addresses map[string]string) []Listener {
	var mine []Listener
	for _, l := range []struct {
		name     string
		role     string // the role that needs it; "": every node has it
		tls      bool
		optional bool // an empty address means that the node does not have it
	}{
		{name: QueryAddr, role: Query, tls: cert},
		{name: IngestAddr, role: Ingest, tls: cert},
		{name: MQTTAddr, role: Ingest, optional: true},
		{name: MQTTTLSAddr, role: Ingest, tls: true, optional: true},
		// It serves the probes. On loopback it does not use TLS, so that commands on this machine
		// need no certificate.
		{name: AdminAddr, tls: cert && !netaddr.IsLoopback(addresses[AdminAddr]), optional: !slices.Contains(roles, Admin)},
	} {
		addr := addresses[l.name]
		if (l.role == "" || slices.Contains(roles, l.role)) && !(l.optional && addr == "") {
			mine = append(mine, Listener{Name: l.name, Addr: addr, TLS: l.tls})
		}
	}
	return mine
}

// Check returns a [store.ErrConfig] if the address is invalid, or if the listener would send
// secrets to other machines without TLS. With behindProxy, a proxy terminates it.
func (l Listener) Check(behindProxy bool) error {
	switch {
	case !netaddr.Valid(l.Addr):
		return store.ConfigError(fmt.Errorf("--%s must be an address with a port, such as 127.0.0.1:8080", l.Name))
	case netaddr.IsLoopback(l.Addr) || l.TLS || behindProxy:
		return nil
	case l.Name == MQTTAddr:
		return store.ConfigError(errors.New("--mqtt-addr is not a loopback address and would send keys without TLS: use " +
			"--mqtt-tls-addr with --tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS"))
	}
	return store.ConfigError(fmt.Errorf("--%s is not a loopback address and would send secrets without TLS: give "+
		"--tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS", l.Name))
}

func (c *Config) has(role string) bool { return slices.Contains(c.Roles, role) }

func (c *Config) speaksTLS(name string) bool {
	return slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.Name == name && l.TLS })
}

// needsStates reports whether the node needs every state: to answer, to list vehicles, or to refuse
// new ones.
func (c *Config) needsStates() bool {
	return c.has(Query) || c.has(Admin) || c.has(Ingest) && c.MaxVehicles != 0
}

func (c *Config) knowsRoads() bool { return c.has(Derive) || c.has(Admin) }
