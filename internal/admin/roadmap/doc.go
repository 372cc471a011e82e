// Package roadmap shows operators how traffic moves on the roads: it selects the
// stretches of a box, the worst first, and writes them as GeoJSON (RFC 7946).
//
// It must never show a stretch whose free flow is not known: fewer than three cars may
// have been there, and the stretch would tell where one of them drove.
package roadmap
