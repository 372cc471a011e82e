package pull

import (
	"bufio"
	"bytes"
	"testing"
)

func FuzzPacket(f *testing.F) {
	f.Fuzz(func(t *testing.T, sent []byte, version byte) {
		b := &mqttBroker{in: bufio.NewReader(bytes.NewReader(sent)), version: version}
		for {
			first, body, err := b.packet()
			if err != nil {
				return
			}
			if m, err := b.publish(first, body); err == nil && (len(m.topic)+len(m.body) > len(body) || m.ack() != nil) {
				t.Errorf("%x: got topic %q and %d bytes of %d", sent, m.topic, len(m.body), len(body))
			}
		}
	})
}
