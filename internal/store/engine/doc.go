// Package engine has what both engines use: packing and queueing of group commits, metrics,
// progress of feeds, the first failure. It must not know how an engine stores anything.
package engine
