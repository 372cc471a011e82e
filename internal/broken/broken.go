// Package broken names the defects that a build can be given on purpose, so that
// the torture proves that it would see them. A build without the tag "broken" has
// none of them: [Has] is constantly false there, and the compiler leaves out what
// stands behind it. With the tag, the variable CARSTATE_BROKEN names the one that
// the program has.
package broken

// Defect is one way to be broken.
type Defect string

// The defects, by the row of the torture that must see them.
const (
	// AcknowledgeEarly answers a sender before its samples are stored.
	AcknowledgeEarly Defect = "acknowledge-early"

	// Of nodes.

	// Unfenced stores the cursor of a partition whoever has written it since.
	Unfenced Defect = "unfenced"
	// OneReplica makes streams with one copy although more were asked for.
	OneReplica Defect = "one-replica"
)
