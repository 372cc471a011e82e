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
	// Row kill.

	// AcknowledgeEarly answers a sender before its samples are stored.
	AcknowledgeEarly Defect = "acknowledge-early"
	// CursorFirst stores how far a partition is folded one fold ahead of the
	// states.
	CursorFirst Defect = "cursor-first"
	// OldRecordWins fills the fleet table at the start with the oldest record of
	// each block that a vehicle has.
	OldRecordWins Defect = "old-record-wins"

	// Row power.

	// NoSync has the engine answer without syncing what it stored.
	NoSync Defect = "no-sync"
	// RenameUnsynced gives a file of the data directory its name before its
	// content is on disk.
	RenameUnsynced Defect = "rename-unsynced"
	// AbandonInterrupted leaves an atomic batch torn that a crash interrupted.
	AbandonInterrupted Defect = "abandon-interrupted"

	// Row full.

	// SwallowedErrors takes a commit of samples that failed for one that was
	// stored.
	SwallowedErrors Defect = "swallowed-errors"

	// Row nodes.

	// Unfenced stores the cursor of a partition whoever has written it since.
	Unfenced Defect = "unfenced"
	// OneReplica makes streams with one copy although more were asked for.
	OneReplica Defect = "one-replica"

	// Row overload.

	// NoShedding takes in everybody who comes, however long they will wait.
	NoShedding Defect = "no-shedding"

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

	// Row strangers.

	// UnboundedStrangers remembers every address to which a token was refused.
	UnboundedStrangers Defect = "unbounded-strangers"
	// SeriesByVehicle counts queries by vehicle.
	SeriesByVehicle Defect = "series-by-vehicle"

	// Row corrupt.

	// UncheckedRecords opens a store without reading its records first, and
	// takes any checksum for right.
	UncheckedRecords Defect = "unchecked-records"

	// Row clocks.

	// StuckLimiter keeps a token out for as long as the clock was set back.
	StuckLimiter Defect = "stuck-limiter"
	// ExpiryCached looks at a token's expiry once, when it is issued.
	ExpiryCached Defect = "expiry-cached"
	// FutureFresh takes a verdict from the future for a fresh one.
	FutureFresh Defect = "future-fresh"

	// Row secrets.

	// LogsToken logs the target of a query, and hides no secret in the log.
	LogsToken Defect = "logs-token"
	// LogsVehicle logs the vehicle of a sample.
	LogsVehicle Defect = "logs-vehicle"
	// StoresToken stores a token in clear.
	StoresToken Defect = "stores-token"
	// EchoesToken repeats a token that is refused.
	EchoesToken Defect = "echoes-token"

	// Row matrix.

	// GrantsUnchecked answers for every vehicle.
	GrantsUnchecked Defect = "grants-unchecked"
	// RevokedCounts goes on answering tokens that were revoked.
	RevokedCounts Defect = "revoked-counts"
	// ForbiddenTold gives another reason for a vehicle that is not granted.
	ForbiddenTold Defect = "forbidden-told"
	// SlowForbidden takes longer to say that a vehicle is not granted.
	SlowForbidden Defect = "slow-forbidden"

	// Row soak.

	// Leak leaves a goroutine behind for every connection of a query.
	Leak Defect = "leak"
)
