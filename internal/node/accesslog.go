package node

import (
	"os"

	"carstate/internal/query"
)

// openAccessLog opens the log that --access-log names. It returns nil if the flag is not set.
func (n *Node) openAccessLog() (*query.AccessLog, error) {
	c := query.AccessLogConfig{
		File: n.config.AccessLog, JSON: n.config.LogJSON, Log: n.config.Log, Registry: n.registry,
	}
	switch c.File {
	case "":
		return nil, nil
	case "-":
		c.File, c.Out = "", os.Stdout
	}
	return query.OpenAccessLog(c)
}

// closeAccessLog writes the lines that are still buffered and closes the log. It runs after the
// last answer.
func (n *Node) closeAccessLog() {
	if n.accessLog != nil {
		if err := n.accessLog.Close(); err != nil {
			n.config.Log.Warn("the access log was not closed", "error", err)
		}
	}
}
