// Package engine has parts that both engines use: group commits, which are packed, awaited and traced
// in the same way, the metrics of an engine, the progress of its feeds, its first failure, and the name
// of its node. It must not know how an engine stores anything.
package engine
