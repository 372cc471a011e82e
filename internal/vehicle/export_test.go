package vehicle

// RawReadings returns readings that [Readings.Set] may refuse.
func RawReadings(present uint32, value [NumSignals]float32) Readings {
	return Readings{present: present, value: value}
}
