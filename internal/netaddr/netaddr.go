// Package netaddr says what the addresses of listeners mean. It opens no connection and resolves no
// name.
package netaddr

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Valid requires host:port with a number as the port. The host is not checked.
func Valid(s string) bool {
	_, port, _ := net.SplitHostPort(s)
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

func IsLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// BaseURL returns a URL for an address: http on loopback and https elsewhere. An address of all
// interfaces, such as 0.0.0.0:8080 in a container, becomes loopback.
func BaseURL(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	switch ip := net.ParseIP(host); {
	case strings.Contains(addr, "://"):
		return strings.TrimSuffix(addr, "/")
	case IsLoopback(addr):
		return "http://" + addr
	case ip.Equal(net.IPv4zero):
		return "http://127.0.0.1:" + port
	case ip.Equal(net.IPv6zero):
		return "http://[::1]:" + port
	}
	return "https://" + addr
}

// ParseNetworks also accepts addresses, but none with a zone, nor IPv4 written as IPv6.
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
