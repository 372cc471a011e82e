package node

import (
	"strings"

	"carstate/internal/admin/wire"
)

// Reloadable are the settings that Reload changes, by the names of their flags.
var Reloadable = []string{"log-level", "max-feed-age", "max-stretches", "max-vehicles"}

// Reload changes the node while it runs. It opens the access log again under its name, as is
// needed after a rotation, reads the certificate again, and puts into use the settings of c
// that [Reloadable] names.
func (n *Node) Reload(c Config) {
	if n.accessLog != nil && n.config.AccessLog != "-" {
		n.accessLog.Reopen()
	}
	if n.cert != nil {
		n.cert.lookNow()
	}
	if n.config.LogLevel != nil && c.LogLevel != nil {
		n.config.LogLevel.Set(c.LogLevel.Level())
	}
	n.health.bound(c.MaxFeedAge)
	n.roads.Bound(c.MaxStretches)
	if own := n.config; own.needsStates() { // a node that follows no states knows no vehicle
		own.MaxVehicles = c.MaxVehicles
		n.boundVehicles(own.vehicleBound())
	}
}

// boundVehicles sets how many vehicles may become known; 0: no bound.
func (n *Node) boundVehicles(most int) {
	n.maxVehicles.Store(int64(most))
	n.fleet.Bound(most)
}

// Settings are what operators see of a node while it runs, and can change.
func (n *Node) Settings() wire.NodeSettings {
	readOnly := n.health.readOnly.Load()
	s := wire.NodeSettings{Version: n.config.Version, ReadOnly: &readOnly}
	if n.config.LogLevel != nil {
		s.LogLevel = strings.ToLower(n.config.LogLevel.Level().String())
	}
	return s
}

// Change puts into use what is set of s, until the node ends or is changed again.
func (n *Node) Change(s wire.NodeSettings) {
	if s.LogLevel != "" && n.config.LogLevel != nil {
		if err := n.config.LogLevel.UnmarshalText([]byte(s.LogLevel)); err != nil {
			n.config.Log.Error("a level of the log is not known", "error", err) // the caller has refused it
		}
	}
	if s.ReadOnly == nil || n.health.readOnly.Swap(*s.ReadOnly) == *s.ReadOnly {
		return
	}
	if *s.ReadOnly {
		n.config.Log.Warn("an operator made this node read-only: telemetry is refused")
	} else {
		n.config.Log.Warn("an operator ended read-only: telemetry is taken again")
	}
}
