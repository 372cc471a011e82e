package node

import (
	"strings"

	"example.org/carstate/internal/admin/wire"
)

func (n *Node) Reload() {
	if n.accessLog != nil && n.config.AccessLog != "-" {
		n.accessLog.Reopen()
	}
	if n.cert != nil {
		n.cert.check(true)
	}
	n.config.Log.Info("reloaded the access log and the certificate")
}

func (n *Node) Settings() wire.NodeSettings {
	readOnly := n.health.readOnly.Load()
	level := strings.ToLower(n.config.LogLevel.Level().String())
	return wire.NodeSettings{Version: n.config.Version, ReadOnly: &readOnly, LogLevel: level}
}

// Change applies the fields of s that are set, until the node ends.
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
