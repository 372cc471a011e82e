package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"example.org/carstate/internal/query"
	"example.org/carstate/internal/store"
)

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
		return nil, fileError(fmt.Errorf("check --access-log: %w", err))
	}
	return log, nil
}

func fileError(err error) error {
	if err != nil && staysWrong(err) {
		return store.ConfigError(err)
	}
	return err
}

// staysWrong excludes errors that may end without a change of the configuration, such as a full
// disk, or a key that does not match its certificate: a renewal may have written one of the two so
// far.
func staysWrong(err error) bool {
	if _, ok := errors.AsType[syscall.Errno](err); !ok {
		return !strings.Contains(err.Error(), "does not match public key") // crypto/tls has no value for it
	}
	return slices.ContainsFunc([]error{syscall.ENOENT, syscall.EACCES, syscall.EISDIR, syscall.ENOTDIR},
		func(lasting error) bool { return errors.Is(err, lasting) })
}

func (n *Node) closeAccessLog() {
	if n.accessLog != nil {
		if err := n.accessLog.Close(); err != nil {
			n.config.Log.Warn("the access log was not closed", "error", err)
		}
	}
}
