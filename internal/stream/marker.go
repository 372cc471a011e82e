package stream

// markerBody is the body of the record that replaces the state of a forgotten
// vehicle. No state is empty.
var markerBody []byte

func sealMarker(subject string) []byte { return seal(subject, append([]byte{0}, markerBody...)) }

func isMarker(body []byte) bool { return len(body) == len(markerBody) }
