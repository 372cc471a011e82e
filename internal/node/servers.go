package node

import (
	"context"
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin"
	"example.org/carstate/internal/admin/console"
	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/backup"
	"example.org/carstate/internal/vehicle"
)

type server struct {
	name     string
	serve    func() error
	shutdown func(context.Context) error
}

func (n *Node) addServers(t *tls.Config, adminKey access.Hash) {
	tlsFor := func(name string) *tls.Config {
		if n.config.speaksTLS(name) {
			return t
		}
		return nil
	}
	if port := n.ports[QueryAddr]; port != nil {
		q := query.New(query.Config{
			Tokens: &n.tables.Tokens, Fleet: n.fleet, MaxAge: n.config.MaxAge, Ready: n.health.canAnswer,
			Limit: n.limit("query", listen.Queries), NoDocs: n.config.NoDocs, TrustedProxies: n.config.TrustedProxies,
			AccessLog: n.accessLog, MaxConnections: n.config.QueryConnections, TLS: tlsFor(QueryAddr),
			Log: n.config.Log, Registry: n.registry,
		})
		n.servers = append(n.servers, server{"query", func() error { return q.Serve(port) }, q.Shutdown})
	}
	c := ingest.Config{
		Store: n.engine, Sources: &n.tables.Sources, Ready: n.health.canStore, ReadOnly: n.health.readOnly.Load,
		Forgotten: n.engine.Forgotten().Has, Admit: n.fleet.Admit, Verdicts: n.verdicts, Unfolded: n.engine.Unfolded(),
		MaxHTTPConnections: n.config.IngestConnections, MaxConnections: n.config.MQTTConnections,
		TLS: tlsFor(IngestAddr), NoDocs: n.config.NoDocs, Log: n.config.Log, Registry: n.registry,
	}
	if port := n.ports[IngestAddr]; port != nil {
		c.Limit = n.limit("ingest", listen.Telemetry)
		h := ingest.NewHTTP(c)
		n.servers = append(n.servers, server{"ingest", func() error { return h.Serve(port) }, h.Shutdown})
	}
	if plain, secure := n.ports[MQTTAddr], n.ports[MQTTTLSAddr]; plain != nil || secure != nil {
		c.TLS = t
		m := ingest.NewMQTT(c)
		if plain != nil {
			n.servers = append(n.servers, server{"MQTT", func() error { return m.Serve(plain) }, m.Shutdown})
		}
		if secure != nil {
			n.servers = append(n.servers, server{"MQTT TLS", func() error { return m.ServeTLS(secure) }, m.Shutdown})
		}
	}
	if port := n.ports[AdminAddr]; port != nil {
		a := admin.New(n.adminConfig(adminKey, tlsFor(AdminAddr)))
		n.servers = append(n.servers, server{"admin", func() error { return a.Serve(port) }, a.Shutdown})
	}
}

func (n *Node) adminConfig(key access.Hash, t *tls.Config) admin.Config {
	c := admin.Config{
		Alive: n.engine.Alive, Ready: n.health.ready, ReadyFor: make(map[string]func() error), FeedAge: n.health.feedAge,
		Newer: n.health.newer.Streams, MaxConnections: n.config.AdminConnections,
		Gatherer: prometheus.Gatherers{n.registry, n.scraped}, Registry: n.registry, Log: n.config.Log,
		TLS: t, Version: n.config.Version, Hosts: n.config.AdminHosts,
	}
	for job, ready := range map[string]func() error{Query: n.health.answers, Ingest: n.health.takes} {
		if n.config.has(job) {
			c.ReadyFor[job] = ready
		}
	}
	if !n.config.has(Admin) {
		return c
	}
	c.Ops = ops.New(ops.Config{
		Store:  backup.New(n.records, n.engine, n.config.Store, &n.tables),
		Tables: &n.tables, Forgotten: n.engine.Forgotten(),
		State: func(ctx context.Context, id vehicle.ID) (vehicle.State, bool, error) {
			return store.State(ctx, n.engine, id)
		},
		Append: n.engine.Append, RoadsDoubted: n.roads.Doubts,
		Fleet: n.fleet, Filled: n.health.answersNow, Changes: n.changes,
		MaxAge: n.config.MaxAge, AdminKey: key, KeyDir: n.config.Store.DataDir, Log: n.config.Log,
	})
	c.Console, c.Roads, c.Started, c.Node = n.console(c.Ops), n.roads, n.health.started, n
	c.ForgetRoads = n.records.ForgetRoads
	return c
}

func (n *Node) limit(name string, b listen.Bounds) *listen.Limit {
	l := listen.NewLimit(&n.probe, b)
	n.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_overloaded", Help: "1 while a listener limits its connections because of overload, else 0.",
		ConstLabels: prometheus.Labels{"listener": name},
	}, func() float64 { return oneIf(l.Active()) }))
	return l
}

func (n *Node) console(operations *ops.Operations) *console.Console {
	c := console.Config{
		Ops: operations, Monitor: n.monitor, Known: listen.Hold,
		Recent: n.engine.Recent, Ready: n.health.ready, Writable: n.engine.Writable,
		Registry: n.registry, Log: n.config.Log, Roads: n.roads, Secure: n.config.speaksTLS(AdminAddr),
		Version: n.config.Version,
	}
	if n.ports[QueryAddr] != nil {
		c.QueryURL = n.URL(QueryAddr)
		if !n.config.NoDocs {
			c.DocsURL = c.QueryURL + "/"
		}
	}
	return console.New(c)
}
