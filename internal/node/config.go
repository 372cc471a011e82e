package node

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/local"
)

// Config says what a node does and where. Its values are valid: the caller has refused
// what cannot work, in the words of its flags. Only what the machine decides (ports,
// files, the store) is found out by [Start].
type Config struct {
	Roles     []string   // of the roles below; without a cluster all of them
	Listeners []Listener // those that these roles need

	// Store says where everything is kept. Its data directory also holds the admin key.
	// Start sets Log, Registry and Tracer.
	Store store.Config
	// Cluster is the part of the engine that several nodes share. Without URLs, Local is
	// the engine. Start sets their Config, and Answers.
	Cluster cluster.Config
	Local   local.Config

	MaxAge     time.Duration // how old readings may be and still answer a query
	MaxFeedAge time.Duration // how long queries are answered out of touch with the engine

	Drain time.Duration // how long Drain goes on serving

	MaxStretches int // how many stretches of road the map learns
	// MaxVehicles is how many vehicles may become known by what the node takes in; 0: as many as the
	// memory allows, or without a bound on a node that needs no states otherwise.
	MaxVehicles int

	// Greatest numbers of connections of each listener; both listeners of MQTT together. Start
	// scales them down if the process may not have so many descriptors.
	QueryConnections, IngestConnections, MQTTConnections, AdminConnections int

	NoDocs         bool           // no documentation beside the queries
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed

	TLSCert, TLSKey string // files, PEM; empty: no listener speaks TLS

	AccessLog string // file; "-" is standard output, "" no access log
	LogJSON   bool   // the access log is JSON

	OTLPEndpoint string  // URL to which traces are sent, with its path; "" traces nothing
	TraceSample  float64 // the part of requests that is traced, 0 to 1

	Version string // of the program
	Log     *slog.Logger
	// LogLevel is the level of Log, which operators may change; nil: they may not.
	LogLevel *slog.LevelVar
}

// The roles of a node.
const (
	Query  = "query"  // answers developers
	Ingest = "ingest" // takes telemetry
	Derive = "derive" // derives states from telemetry
	Admin  = "admin"  // serves operators
)

// Listener is one port as it was asked for.
type Listener struct {
	Name    string // of the names below
	Addr    string // host and port
	TLS     bool   // the listener itself speaks TLS
	AnyPort bool   // if the port is in use, a free one takes its place
}

// The names of the listeners, which are those of their flags.
const (
	QueryAddr   = "query-addr"
	IngestAddr  = "ingest-addr"
	MQTTAddr    = "mqtt-addr"
	MQTTTLSAddr = "mqtt-tls-addr"
	AdminAddr   = "admin-addr"
)

func (c *Config) has(role string) bool { return slices.Contains(c.Roles, role) }

// speaksTLS reports whether the listener of a name speaks TLS itself.
func (c *Config) speaksTLS(name string) bool {
	return slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.Name == name && l.TLS })
}

// needsStates reports whether the node has a use for the state of every vehicle: to answer
// from, for the console, which counts and lists them, or to tell which vehicles are new.
func (c *Config) needsStates() bool {
	return c.has(Query) || c.has(Admin) || c.has(Ingest) && c.MaxVehicles != 0
}

// knowsRoads reports whether the node has a map of roads: to judge, or to show it.
func (c *Config) knowsRoads() bool { return c.has(Derive) || c.has(Admin) }
