package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/query"
	"example.org/carstate/internal/store"
)

const filesBesideConnections = 512 // for the store, its engine, logs and others

// Otherwise the clients of one listener could use up the descriptors of the others and the store.
func (c *Config) fitToFiles() {
	reserve := filesBesideConnections
	var flags []string
	var limits []*int
	var before []int
	for _, l := range []struct {
		flag  string
		limit *int
		of    []string
		spare int
	}{
		{"query-connections", &c.QueryConnections, []string{QueryAddr}, query.SpareConnections},
		{"ingest-connections", &c.IngestConnections, []string{IngestAddr}, 0},
		{"mqtt-connections", &c.MQTTConnections, []string{MQTTAddr, MQTTTLSAddr}, 0},
		{"admin-connections", &c.AdminConnections, []string{AdminAddr}, 0},
	} {
		if slices.ContainsFunc(c.Listeners, func(has Listener) bool { return slices.Contains(l.of, has.Name) }) {
			flags, limits, before = append(flags, l.flag), append(limits, l.limit), append(before, *l.limit)
			reserve += l.spare
		}
	}
	files, scaled := listen.FitToFiles(reserve, limits...)
	if !scaled {
		return
	}
	needed := reserve
	var changes []string
	for i, flag := range flags {
		needed += before[i]
		changes = append(changes, fmt.Sprintf("--%s %d to %d", flag, before[i], *limits[i]))
	}
	c.Log.Warn("the limit of file descriptors is too low for the limits of connections, which were scaled down: "+
		"raise it (LimitNOFILE= of the unit, ulimit -n), or set lower limits of connections",
		"descriptors", files, "needed", needed, "scaled", strings.Join(changes, ", "))
}

type ports map[string]net.Listener

func openPorts(all []Listener) (_ ports, err error) {
	open := make(ports)
	defer func() {
		if err != nil {
			open.close()
		}
	}()
	for _, a := range all {
		l, err := net.Listen("tcp", a.Addr)
		if errors.Is(err, syscall.EADDRINUSE) && a.AnyPort {
			host, _, _ := net.SplitHostPort(a.Addr)
			l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		}
		if err != nil {
			return nil, listenError(a, err)
		}
		open[a.Name] = l
	}
	return open, nil
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

func (p ports) close() {
	for _, l := range p {
		l.Close()
	}
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
