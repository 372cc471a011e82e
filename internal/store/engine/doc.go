// Package engine has the parts that both engines use: the packing and queueing of group commits,
// the metrics of an engine, the progress of its feeds, its first failure, and the name of its node.
// The package must not know how an engine stores anything.
package engine
