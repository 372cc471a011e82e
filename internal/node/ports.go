package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"example.org/carstate/internal/query"
	"example.org/carstate/internal/store"
)

const filesBesideConnections = 512 + query.SpareConnections // for the store, its engine, logs and others

func (c *Config) fitToFiles() {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		c.fitTo(int(min(files.Cur, 1<<30)))
	}
}

// fitTo scales the limits of connections by one factor, but none below 16, to fit into the file
// descriptors. Otherwise the clients of one listener could use up the descriptors of the rest.
func (c *Config) fitTo(files int) {
	type limit struct {
		flag string
		most *int
		of   []string
	}
	room, wanted := max(0, files-filesBesideConnections), 0
	var limits []limit
	for _, l := range []limit{
		{"query-connections", &c.QueryConnections, []string{QueryAddr}},
		{"ingest-connections", &c.IngestConnections, []string{IngestAddr}},
		{"mqtt-connections", &c.MQTTConnections, []string{MQTTAddr, MQTTTLSAddr}},
		{"admin-connections", &c.AdminConnections, []string{AdminAddr}},
	} {
		if slices.ContainsFunc(c.Listeners, func(has Listener) bool { return slices.Contains(l.of, has.Name) }) {
			limits = append(limits, l)
			wanted += *l.most
		}
	}
	if wanted <= room {
		return
	}
	var changes []string
	for _, l := range limits {
		before := *l.most
		*l.most = max(min(16, before), before*room/wanted)
		changes = append(changes, fmt.Sprintf("--%s %d to %d", l.flag, before, *l.most))
	}
	c.Log.Warn("the limit of file descriptors is too low for the limits of connections, which were scaled down: "+
		"raise it (LimitNOFILE= of the unit, ulimit -n), or set lower limits of connections",
		"descriptors", files, "needed", filesBesideConnections+wanted, "scaled", strings.Join(changes, ", "))
}

func (n *Node) openPorts() error {
	for _, a := range n.config.Listeners {
		l, err := net.Listen("tcp", a.Addr)
		if errors.Is(err, syscall.EADDRINUSE) && a.AnyPort {
			host, _, _ := net.SplitHostPort(a.Addr)
			l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		}
		if err != nil {
			return listenError(a, err)
		}
		n.ports[a.Name] = l
	}
	return nil
}

func listenError(a Listener, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("the address %s is in use, perhaps by another carstate: stop that program or choose another --%s",
			a.Addr, a.Name)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not open the port of %s: choose one above 1023 for --%s", a.Addr, a.Name)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this machine: choose another --%s", a.Addr, a.Name)
	}
	return fmt.Errorf("%s cannot be opened: check --%s: %w", a.Addr, a.Name, err)
}

func (n *Node) Addr(name string) net.Addr {
	if l := n.ports[name]; l != nil {
		return l.Addr()
	}
	return nil
}

func (n *Node) URL(name string) string {
	scheme := "http"
	if n.config.speaksTLS(name) {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(n.Addr(name).String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

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
