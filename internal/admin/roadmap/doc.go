// Package roadmap shows operators the traffic on the roads. It selects the stretches in a box, the
// worst first, and writes them as GeoJSON (RFC 7946).
//
// It must never show a stretch whose free-flow speed is unknown. Fewer than three cars may have
// driven on such a stretch, so it would reveal where one of them was.
package roadmap
