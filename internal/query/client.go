package query

import (
	"bytes"
	"net/netip"
	"slices"

	"example.org/carstate/internal/listen"
)

// clientOf returns the address of the client that sent a request. peer is the other end of the
// connection. If peer is not a trusted proxy, peer is the client. Otherwise clientOf reads the list
// in X-Forwarded-For from its end to its start, because each proxy appends the address of its own
// client. The first address in this order that is not a trusted proxy is the client. The remaining
// addresses are ignored, because the client may have invented them. If the list has no such
// address, or an invalid member before it, clientOf returns the last proxy that it has read.
func clientOf(peer netip.Addr, headers []byte, trusted []netip.Prefix) netip.Addr {
	isTrusted := func() bool {
		return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
	}
	if !isTrusted() {
		return peer
	}
	var list []byte // several headers X-Forwarded-For form one list
	for line := range bytes.Lines(headers) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("x-forwarded-for")) {
			list = append(append(list, ','), value...)
		}
	}
	for len(list) > 0 && isTrusted() {
		i := bytes.LastIndexByte(list, ',')
		member := bytes.TrimSpace(list[i+1:])
		if list = list[:max(i, 0)]; len(member) == 0 {
			continue
		}
		before, ok := parseHop(member)
		if !ok {
			break
		}
		peer = before
	}
	return peer
}

// parseHop parses an address with or without brackets and port.
func parseHop(member []byte) (netip.Addr, bool) {
	text := string(member)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return listen.Plain(withPort.Addr()), true
	}
	if n := len(text); n > 1 && text[0] == '[' && text[n-1] == ']' {
		text = text[1 : n-1]
	}
	a, err := netip.ParseAddr(text)
	return listen.Plain(a), err == nil
}
