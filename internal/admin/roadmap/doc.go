// Package roadmap selects the stretches of road in a box, the worst first, and writes them as
// GeoJSON (RFC 7946).
//
// It must never show a stretch whose free-flow speed is unknown: fewer than three cars may have
// driven there, so it would reveal where one of them was.
package roadmap
