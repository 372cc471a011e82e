package cluster

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"example.org/carstate/internal/netaddr"
)

// ValidURLs reports whether urls can be the value of [Config.URLs]. The check is necessary because
// the client library of NATS accepts URLs with any scheme.
func ValidURLs(urls string) bool {
	all, err := parseURLs(urls)
	return err == nil && !slices.ContainsFunc(all, func(u *url.URL) bool {
		return u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)
	})
}

// LoginInClear reports whether the engine could send a login without TLS to a NATS server on
// another machine. With a URL that begins with tls:// or wss://, the engine never does so. With any
// other URL, the engine could do so even if the server uses TLS: an attacker in the network could
// pretend that the server does not use TLS, and then read the login or impersonate the server. If
// the configuration contains no login, or if its URLs are not valid, the result is false.
func (c *Config) LoginInClear() bool {
	all, _ := parseURLs(c.URLs)
	return ValidURLs(c.URLs) && slices.ContainsFunc(all, func(u *url.URL) bool {
		return (u.User != nil || c.CredsFile != "") && u.Scheme != "tls" && u.Scheme != "wss" &&
			!netaddr.IsLoopback(net.JoinHostPort(u.Hostname(), "0"))
	})
}

// parseURLs parses a comma-separated list of URLs. For an address without a scheme, the scheme is
// nats.
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
