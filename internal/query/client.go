package query

import (
	"bytes"
	"net/netip"
	"slices"

	"example.org/carstate/internal/listen"
)

// clientOf returns peer, or, if peer is a trusted proxy, the last address in X-Forwarded-For that is
// none: earlier ones may be invented. Reading backwards, clientOf ends at an invalid member, or the
// start, with the last proxy that it read.
func clientOf(peer netip.Addr, headers []byte, trusted []netip.Prefix) netip.Addr {
	isTrusted := func() bool {
		return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
	}
	if !isTrusted() {
		return peer
	}
	var list []byte
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
