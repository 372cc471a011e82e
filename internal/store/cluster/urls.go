package cluster

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"example.org/carstate/internal/netaddr"
)

// The client library of NATS accepts URLs with any scheme.
func ValidURLs(urls string) bool {
	all, err := parseURLs(urls)
	return err == nil && !slices.ContainsFunc(all, func(u *url.URL) bool {
		return u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)
	})
}

// Only tls:// and wss:// exclude a login in clear: with other schemes, an attacker in the network
// could pretend that the server has no TLS.
func (c *Config) LoginInClear() bool {
	all, _ := parseURLs(c.URLs)
	return ValidURLs(c.URLs) && slices.ContainsFunc(all, func(u *url.URL) bool {
		return (u.User != nil || c.CredsFile != "") && u.Scheme != "tls" && u.Scheme != "wss" &&
			!netaddr.IsLoopback(net.JoinHostPort(u.Hostname(), "0"))
	})
}

// The default scheme is nats.
func parseURLs(list string) (all []*url.URL, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}
