package stream

import "carstate/internal/store/codec"

// Names of the streams, for what asks the engine about one of them.
const (
	Telemetry = codec.Telemetry
	States    = codec.States
	Tokens    = codec.Tokens
	Sources   = codec.Sources
	Audit     = codec.Audit
	Roads     = codec.Roads
)

// Short names for the files of the keeper.
const vidKeysSubject = codec.VIDKeysSubject

var (
	errDamaged = codec.ErrDamaged

	seal   = codec.Seal
	unseal = codec.Unseal
)
