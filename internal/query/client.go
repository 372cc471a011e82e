package query

import (
	"bytes"
	"net/netip"
	"slices"

	"carstate/internal/netguard"
)

// clientOf returns the address of the client that sent a request. The parameter peer is the other
// end of the connection. If peer is not a trusted proxy, peer is the client. Otherwise clientOf
// reads the list in X-Forwarded-For from its end to its start, because each proxy appends the
// address of its own client. The first address in this order that is not a trusted proxy is the
// client. The remaining addresses are ignored, because the client may have invented them. If the
// list has no such address, or an invalid member before it, clientOf returns the last proxy that it
// has read.
func clientOf(peer netip.Addr, headers []byte, trusted []netip.Prefix) netip.Addr {
	h := hops{lines: headers}
	for isTrusted(peer, trusted) {
		before, ok := parseHop(h.previous())
		if !ok {
			break
		}
		peer = before
	}
	return peer
}

func isTrusted(a netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// hops reads the members of X-Forwarded-For from the last to the first. Several such
// headers form one list.
type hops struct {
	lines []byte // the header lines that are not read yet, from the first
	list  []byte // the members of the present header that are not read yet
}

// previous returns the members of the list in X-Forwarded-For from the last to the first, one with
// each call. It skips empty members. When no member is left, it returns nil.
func (h *hops) previous() []byte {
	for {
		for len(h.list) > 0 {
			i := bytes.LastIndexByte(h.list, ',')
			member := trimSpace(h.list[i+1:])
			h.list = h.list[:max(i, 0)]
			if len(member) > 0 {
				return member
			}
		}
		if len(h.lines) == 0 {
			return nil
		}
		line := h.lines
		if i := bytes.LastIndexByte(h.lines, '\n'); i >= 0 {
			line, h.lines = h.lines[i+1:], bytes.TrimSuffix(h.lines[:i], []byte("\r"))
		} else {
			h.lines = nil
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && equalFold(name, "x-forwarded-for") {
			h.list = value
		}
	}
}

// parseHop parses an address with or without brackets and port.
func parseHop(member []byte) (netip.Addr, bool) {
	text := string(member)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return netguard.Plain(withPort.Addr()), true
	}
	if n := len(text); n > 1 && text[0] == '[' && text[n-1] == ']' {
		text = text[1 : n-1]
	}
	a, err := netip.ParseAddr(text)
	return netguard.Plain(a), err == nil
}
