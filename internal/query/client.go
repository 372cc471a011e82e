package query

import (
	"bytes"
	"net/netip"
	"slices"
)

// clientOf says who sent a request that came from peer. A proxy writes the
// address it was called from behind what X-Forwarded-For holds already, so the
// list is read from its end, and only for as long as each hop is a proxy that is
// trusted: what stands before that, anybody may have made up.
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

// hops reads the members of X-Forwarded-For from the last to the first. Several
// such headers are one list.
type hops struct {
	lines []byte // the header lines before the one that list is of
	list  []byte // what is left of a line
}

// previous returns the next member, empty if there is none.
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

// parseHop reads an address, in brackets or not, with a port or without.
func parseHop(member []byte) (netip.Addr, bool) {
	text := string(member)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return plainAddr(withPort.Addr()), true
	}
	if n := len(text); n > 1 && text[0] == '[' && text[n-1] == ']' {
		text = text[1 : n-1]
	}
	a, err := netip.ParseAddr(text)
	return plainAddr(a), err == nil
}

// plainAddr writes an address in the one form that compares.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
