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

	// Of the row "overload".

	// NoShedding takes in everybody who comes, however long they will wait.
	NoShedding Defect = "no-shedding"

	// Of the row "strangers".

	// UnboundedStrangers remembers every address to which a token was refused.
	UnboundedStrangers Defect = "unbounded-strangers"
	// SeriesByVehicle counts queries by vehicle.
	SeriesByVehicle Defect = "series-by-vehicle"

	// Of the row "soak".

	// Leak leaves a goroutine behind for every connection of a query.
	Leak Defect = "leak"
	// Row hostile.

	// OverlooksTransferEncoding takes a request's Content-Length, or that it has
	// none, for all there is to say about its body.
	OverlooksTransferEncoding Defect = "overlooks-transfer-encoding"
	// EchoesInput puts a piece of a request into the text that refuses it.
	EchoesInput Defect = "echoes-input"
	// NoReadDeadline waits for ever for the rest of a request.
	NoReadDeadline Defect = "no-read-deadline"
	// AnswersSubscribe lets a source subscribe.
	AnswersSubscribe Defect = "answers-subscribe"
)
