package cluster

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"carstate/internal/netaddr"
)

// ValidURLs reports whether urls can be the value of [Config.URLs]. The check is necessary because
// the client library of NATS accepts URLs with any scheme.
func ValidURLs(urls string) bool {
	for _, u := range splitURLs(urls) {
		to, err := url.Parse(u)
		if err != nil || to.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, to.Scheme) {
			return false
		}
	}
	return true
}

// LoginInClear reports whether the engine could send a login without TLS to a NATS server on
// another machine. With a URL that begins with tls:// or wss://, the engine never does so. With any
// other URL, the engine could do so even if the server uses TLS: an attacker in the network could
// pretend that the server does not use TLS, and then read the login or impersonate the server. If
// the configuration contains no login, the result is false.
func (c *Config) LoginInClear() bool {
	for _, u := range splitURLs(c.URLs) {
		to, err := url.Parse(u)
		if err != nil || to.Host == "" {
			continue // the engine rejects it
		}
		secret := to.User != nil || c.CredsFile != ""
		if secret && to.Scheme != "tls" && to.Scheme != "wss" &&
			!netaddr.IsLoopback(net.JoinHostPort(to.Hostname(), "0")) {
			return true
		}
	}
	return false
}

// splitURLs returns the URLs of a comma-separated list. For an address without a scheme, the scheme
// is nats.
func splitURLs(list string) []string {
	urls := strings.Split(list, ",")
	for i, u := range urls {
		if u = strings.TrimSpace(u); !strings.Contains(u, "://") {
			u = "nats://" + u
		}
		urls[i] = u
	}
	return urls
}
