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

// openAccessLog opens the log that --access-log names. If there is none, both results are nil.
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

// fileError returns err, the error of a configured file. If a start with the same configuration
// would fail in the same way, it is a [store.ErrConfig]. If err is nil, it returns nil.
func fileError(err error) error {
	if err != nil && staysWrong(err) {
		return store.ConfigError(err)
	}
	return err
}

// staysWrong reports whether an error of reading a file, or of opening it for writing, will occur
// again with the same configuration. Such an error means that the path, a permission or the content
// is wrong. Other errors of the operating system, such as a full disk, may end without a change of
// the configuration. So may the error that a key does not match its certificate: a renewal may have
// written only one of the two files so far.
func staysWrong(err error) bool {
	if _, ok := errors.AsType[syscall.Errno](err); !ok {
		return !strings.Contains(err.Error(), "does not match public key") // crypto/tls has no value for it
	}
	return slices.ContainsFunc([]error{syscall.ENOENT, syscall.EACCES, syscall.EISDIR, syscall.ENOTDIR},
		func(lasting error) bool { return errors.Is(err, lasting) })
}

// closeAccessLog writes buffered lines and closes the log, after the last query was answered.
func (n *Node) closeAccessLog() {
	if n.accessLog != nil {
		if err := n.accessLog.Close(); err != nil {
			n.config.Log.Warn("the access log was not closed", "error", err)
		}
	}
}
