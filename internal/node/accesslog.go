package node

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"carstate/internal/query"
)

// openAccessLog opens the log of queries that --access-log names. If the flag is not set, it
// returns nil.
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
	log, err := query.OpenAccessLog(c)
	if err != nil {
		err = fmt.Errorf("check --access-log: %w", err)
		if !errors.Is(err, syscall.ENOSPC) { // a full disk may get room, but a wrong path stays wrong
			err = configError{err}
		}
		return nil, err
	}
	return log, nil
}

// closeAccessLog writes the buffered lines and closes the log. It is called after the last query
// was answered.
func (n *Node) closeAccessLog() {
	if n.accessLog != nil {
		if err := n.accessLog.Close(); err != nil {
			n.config.Log.Warn("the access log was not closed", "error", err)
		}
	}
}
