package cluster

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
