package main

import (
	"context"
	"time"

	"carstate/internal/admin"
	"carstate/internal/admin/console"
	"carstate/internal/vehicle"
)

// console makes the operator's pages.
func (s *service) console(deeds *admin.Deeds) admin.Console {
	c := console.Config{
		Deeds: deeds, Monitor: s.monitor, Tokens: &s.tokens, Sources: &s.sources, Operators: s.keeper.Operators(),
		State: s.engine.State, Recent: s.recent, Audit: s.keeper.AuditPage,
		Ready: s.health.ready, Writable: s.engine.Writable,
		MaxAge: s.flags.MaxAge, Registry: s.registry, Log: s.log, Roads: s.roads,
	}
	if s.ports["--query-addr"] != nil {
		c.QueryURL = s.url("--query-addr")
	}
	for _, a := range s.flags.addresses() {
		c.Secure = c.Secure || a.flag == "--admin-addr" && a.tls
	}
	return console.New(c)
}

// recent reads what is retained of a vehicle's samples.
func (s *service) recent(ctx context.Context, id vehicle.ID, most int) ([]vehicle.Sample, time.Time, bool, error) {
	r, err := s.engine.Recent(ctx, id, most)
	return r.Samples, r.Since, r.All, err
}
