// Package term writes what commands print to people: text that cannot control a terminal, and the
// progress of long work. It knows nothing of the service.
package term
