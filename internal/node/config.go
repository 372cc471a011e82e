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

// Config is made from flags that the caller has checked. [Start] checks only what depends on the
// machine.
type Config struct {
	Roles     []string // without a cluster, all of them
	Listeners []Listener

	// The data directory also holds the admin key. Start sets Store's Log, Registry and Newer.
	Store store.Config
	// If Cluster has no URLs, Local configures the engine of one machine. Start copies Store into
	// the Config in each.
	Cluster cluster.Config
	Local   local.Config

	MaxAge     time.Duration // of a reading in an answer
	Checkpoint time.Duration
	MaxFeedAge time.Duration // how long queries are answered without contact to the engine

	Drain time.Duration

	MaxStretches int
	// At MaxVehicles, the node refuses new vehicles. 0 means a limit by the memory, or none on a
	// node with neither the query nor the admin role.
	MaxVehicles int

	// The two MQTT listeners share one limit. Start lowers these limits if the process may not open
	// enough files.
	QueryConnections, IngestConnections, MQTTConnections, AdminConnections int

	NoDocs         bool
	AdminHosts     []string       // names that the admin listener accepts, besides localhost
	TrustedProxies []netip.Prefix // proxies whose X-Forwarded-For is trusted

	TLSCert, TLSKey string // PEM files; if empty, no listener speaks TLS

	AccessLog string // file; "-" is standard output, "" disables the log
	LogJSON   bool

	Version  string
	Log      *slog.Logger
	LogLevel *slog.LevelVar
}

const (
	Query  = "query"
	Ingest = "ingest"
	Derive = "derive"
	Admin  = "admin"
)

type Listener struct {
	Name    string // one of the names below
	Addr    string
	TLS     bool
	AnyPort bool // if the port is in use, use a free one instead
}

const (
	QueryAddr   = "query-addr"
	IngestAddr  = "ingest-addr"
	MQTTAddr    = "mqtt-addr"
	MQTTTLSAddr = "mqtt-tls-addr"
	AdminAddr   = "admin-addr"
)

func Listeners(roles []string, cert bool, addresses map[string]string) []Listener {
	var mine []Listener
	for _, l := range []struct {
		name     string
		role     string // the role that needs it; "": every node has it
		tls      bool
		optional bool // if the address is empty, the node does not have it
	}{
		{name: QueryAddr, role: Query, tls: cert},
		{name: IngestAddr, role: Ingest, tls: cert},
		{name: MQTTAddr, role: Ingest, optional: true},
		{name: MQTTTLSAddr, role: Ingest, tls: true, optional: true},
		// The admin listener serves the probes. On loopback it does not use TLS, so that commands
		// on this machine need no certificate.
		{name: AdminAddr, tls: cert && !netaddr.IsLoopback(addresses[AdminAddr]), optional: !slices.Contains(roles, Admin)},
	} {
		addr := addresses[l.name]
		if (l.role == "" || slices.Contains(roles, l.role)) && !(l.optional && addr == "") {
			mine = append(mine, Listener{Name: l.name, Addr: addr, TLS: l.tls})
		}
	}
	return mine
}

// Check refuses a listener that would send secrets without TLS; behindProxy: a proxy terminates it.
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

func (c *Config) needsStates() bool {
	return c.has(Query) || c.has(Admin) || c.has(Ingest) && c.MaxVehicles != 0
}

func (c *Config) knowsRoads() bool { return c.has(Derive) || c.has(Admin) }
