package node

import (
	"strings"

	"example.org/carstate/internal/admin/wire"
)

// Reloadable lists the settings that Reload changes, by the names of their flags.
var Reloadable = []string{"log-level", "max-feed-age", "max-stretches", "max-vehicles"}

// Reload changes the running node. It reopens the access log by its name, as a rotation of logs
// requires, reads the certificate again, and applies the settings of c that [Reloadable] lists.
func (n *Node) Reload(c Config) {
	if n.accessLog != nil && n.config.AccessLog != "-" {
		n.accessLog.Reopen()
	}
	if n.cert != nil {
		n.cert.check(true)
	}
	n.config.LogLevel.Set(c.LogLevel.Level())
	n.health.bound(c.MaxFeedAge)
	n.roads.Bound(c.MaxStretches)
	if own := n.config; own.needsStates() { // without the states, the node cannot tell which vehicles are known
		own.MaxVehicles = c.MaxVehicles
		n.fleet.Bound(own.vehicleBound())
	}
}

// Settings returns the settings that operators can see and change while the node runs.
func (n *Node) Settings() wire.NodeSettings {
	readOnly := n.health.readOnly.Load()
	level := strings.ToLower(n.config.LogLevel.Level().String())
	return wire.NodeSettings{Version: n.config.Version, ReadOnly: &readOnly, LogLevel: level}
}

// Change applies those fields of s that are set. The changed settings are not stored. They are
// valid until the next change or until the node ends.
func (n *Node) Change(s wire.NodeSettings) {
	if s.LogLevel != "" {
		if err := n.config.LogLevel.UnmarshalText([]byte(s.LogLevel)); err != nil {
			n.config.Log.Error("unknown log level", "error", err) // the caller has validated it
		}
	}
	if s.ReadOnly == nil || n.health.readOnly.Swap(*s.ReadOnly) == *s.ReadOnly {
		return
	}
	if *s.ReadOnly {
		n.config.Log.Warn("an operator made this node read-only: telemetry is refused")
	} else {
		n.config.Log.Warn("an operator ended read-only: telemetry is accepted again")
	}
}
