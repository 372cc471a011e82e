package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
		if staysWrong(err) {
			err = configError{err}
		}
		return nil, err
	}
	return log, nil
}

// staysWrong reports whether err, from opening a file, is of a wrong path or a missing permission.
// Other errors, such as those of a full disk, may pass by themselves.
func staysWrong(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOENT, syscall.EACCES, syscall.EISDIR, syscall.ENOTDIR},
		func(lasting error) bool { return errors.Is(err, lasting) })
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
