package store

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

func NewRecordStore(e Engine, c Config, tables *access.Tables) *RecordStore {
	c = c.WithDefaults()
	k := &RecordStore{
		engine: e, config: c, log: c.Log, now: c.Now, forgotten: e.Forgotten(), tables: tables,
		by: rand.Text(), roadsChanged: make(chan struct{}, 1),
	}
	tokenSets, sourceSets := sets{}, sets{}
	k.tokenFeed = e.Feed(codec.Tokens, func(r Record) error { return k.apply(r, tokenSets) })
	k.srcFeed = e.Feed(codec.Sources, func(r Record) error { return k.apply(r, sourceSets) })
	k.roadsRefused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carstate_roads_refused_total",
		Help: "Stored profiles of roads, and messages of other nodes about roads, that were ignored because they " +
			"are invalid.",
	}, []string{"reason"})
	k.roadsRefused.WithLabelValues("profile")
	k.roadsRefused.WithLabelValues("evidence")
	k.config.Registry.MustRegister(k.roadsRefused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carstate_forgotten_vehicles",
		Help: "Forgotten vehicles, whose telemetry is refused.",
	}, func() float64 { return float64(k.forgotten.Len()) }))
	return k
}

// RunTokens maintains the table of tokens and their usage, as [Feed.Run] does.
func (k *RecordStore) RunTokens(ctx context.Context, caughtUp func()) error {
	return k.tokenFeed.Run(ctx, caughtUp)
}

func (k *RecordStore) RunSources(ctx context.Context, caughtUp func()) error {
	return k.srcFeed.Run(ctx, caughtUp)
}

func (k *RecordStore) apply(r Record, large sets) error {
	kind, rest, _ := strings.Cut(r.Subject, ".")
	if r.Newer && kind != "tokenuse" {
		k.applyNewer(kind, rest, large)
		return nil
	}
	switch kind {
	case "token", "source", "operator":
		c, granted, err := decodeCredential(r)
		if err != nil {
			return err
		}
		large.record(r.Subject, granted, func(v access.Vehicles) {
			c.Vehicles = v
			k.tables.Of(c.Kind).Put(c)
		})
	case "tokenset", "sourceset":
		return large.apply(r)
	case "tokenuse":
		return k.applyUsage(rest, r)
	case "tombstone":
		t, err := decodeTombstone(r.Subject, r.Body)
		if err != nil {
			return err
		}
		k.forgotten.Put(t)
	case codec.VIDKeysSubject:
		keys, err := decodeVIDKeys(r.Body)
		if err != nil {
			return err
		}
		k.forgotten.SetKeys(keys.Keys...)
	}
	return nil
}

// as [Newer] says
func (k *RecordStore) applyNewer(kind, rest string, large sets) {
	delete(large, kind+"."+rest)
	switch kind {
	case "token":
		k.tables.Tokens.Lose(rest)
	case "source":
		k.tables.Sources.Lose(rest)
	case "operator":
		k.tables.Operators.Lose(rest)
	case "tombstone":
		if hash, err := access.ParseVehicleHash(rest); err == nil {
			// Nodes that can decode the record erase.
			now := k.now()
			k.forgotten.Put(access.Tombstone{Vehicle: hash, Forgotten: now, Removed: true, Erased: now, Unread: true})
		}
	case codec.VIDKeysSubject:
		k.config.Newer.loseKeys()
	}
}
