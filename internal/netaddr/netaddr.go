// Package netaddr says what the addresses of listeners mean: whether they are valid, whether only
// this machine can reach them, and which URLs they have. It opens no connection and asks no server
// for a name.
package netaddr

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Valid reports whether s has the form host:port with a number from 0 to 65535 as the port. The
// host may be empty, and is not checked.
func Valid(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// IsLoopback reports whether addr, in the form host:port, is on the loopback interface, which only
// this machine can reach. The host must be localhost or an IP address; for any other text,
// IsLoopback returns false.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// BaseURL returns the base URL of the service at addr. If addr is already a URL, BaseURL only
// removes a slash at its end. An address on loopback becomes an http URL. An address that means all
// interfaces, such as 0.0.0.0:8080 in a container, becomes an http URL on loopback. Any other
// address becomes an https URL.
func BaseURL(addr string) string {
	switch {
	case strings.Contains(addr, "://"):
		return strings.TrimSuffix(addr, "/")
	case IsLoopback(addr):
		return "http://" + addr
	}
	if host, port, err := net.SplitHostPort(addr); err == nil {
		switch ip := net.ParseIP(host); {
		case ip.Equal(net.IPv4zero):
			return "http://127.0.0.1:" + port
		case ip.Equal(net.IPv6zero):
			return "http://[::1]:" + port
		}
	}
	return "https://" + addr
}

// ParseNetworks parses IP address prefixes such as 10.0.0.0/8. A single address becomes a prefix
// that contains only that address. If one of the texts is neither a prefix nor an address, has a
// zone, or is an IPv4 address written as IPv6, all is nil and ok is false.
func ParseNetworks(texts []string) (all []netip.Prefix, ok bool) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); aerr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || p.Addr().Is4In6() {
			return nil, false
		}
		all = append(all, p.Masked())
	}
	return all, true
}
