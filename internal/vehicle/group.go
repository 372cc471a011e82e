package vehicle

// Groups may come from different senders, or with different delays, so each is ordered by time.
type group uint8

const (
	throttleGroup group = iota
	motionGroup
	positionGroup
	numGroups = iota
)

// The other signals belong to the throttle system.
var groupOf = [NumSignals]group{
	Speed: motionGroup, OBDSpeed: motionGroup, EngineSpeed: motionGroup, LowVoltageSystemState: motionGroup,
	FreeFlowSpeed: motionGroup, SpeedHolds: motionGroup,
	CurrentLatitude: positionGroup, CurrentLongitude: positionGroup, CurrentHeading: positionGroup,
	CurrentAccuracy: positionGroup,
}

func (s *State) newest() [numGroups]UnixMilli {
	return [...]UnixMilli{
		throttleGroup: s.throttleTime(),
		motionGroup: max(newestOf(s.Latest[Speed:EngineLoad]), s.Latest[LowVoltageSystemState].Time, s.Latest[SpeedHolds].Time,
			s.Latest[FreeFlowSpeed].Time),
		positionGroup: s.PositionTime(),
	}
}

func (s *State) throttleTime() UnixMilli { return newestOf(s.Latest[EngineLoad : MILOn+1]) }

func (s *State) PositionTime() UnixMilli {
	return newestOf(s.Latest[CurrentLatitude : CurrentAccuracy+1])
}

func newestOf(readings []Reading) (t UnixMilli) {
	for i := range readings {
		t = max(t, readings[i].Time)
	}
	return t
}
