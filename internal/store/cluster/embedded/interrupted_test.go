package embedded

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Of the log's lines only those of our streams mean that nothing is stored any
// more.
func TestIsWriteError(t *testing.T) {
	for text, want := range map[string]bool{
		"Filestore [TOKENS] Critical write error: no space left on device":                   true,
		"JetStream stream '$G > STATES' critical write error: no space left on device":       true,
		"Filestore [x7Gh2kQa] Critical write error: no space left on device":                 false,
		"JetStream consumer '$G > STATES > c' critical write error: no space left on device": false,
		"Filestore [TOKENS] Ignoring non-write error: open TOKENS: no such file":             false,
	} {
		if isWriteError(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// A batch that fills several blocks may have begun as many before the newest.
func TestInterruptedBlocks(t *testing.T) {
	for size, want := range map[int]int{1: 1, MaxBlockBytes - 1000: 1, MaxBlockBytes: 2, 3 * MaxBlockBytes: 4} {
		b := &Interrupted{Records: []Record{{Payload: make([]byte, size)}}}
		if got := b.blocks(); got != want {
			t.Errorf("%d bytes: %d blocks, want %d", size, got, want)
		}
	}
}

// Of a batch on which nothing depends, what may be newer stays; then nothing may
// say that all of it is there.
func TestInterruptedUnsure(t *testing.T) {
	sent := time.Now()
	b := &Interrupted{ID: "b"}
	for _, s := range []string{"x", "y", "z"} {
		b.Records = append(b.Records, Record{Subject: s, Payload: []byte(s), Time: sent.UnixNano()})
	}
	older, newer := &nats.RawStreamMsg{Time: sent.Add(-1), Sequence: 1}, &nats.RawStreamMsg{Time: sent.Add(1), Sequence: 2}
	own := &nats.RawStreamMsg{Time: sent.Add(1), Sequence: 1, Header: nats.Header{"Nats-Batch-Id": {"b"}}}
	stored := &nats.RawStreamMsg{Time: sent.Add(1), Sequence: 3, Data: []byte("y")}
	for _, c := range []struct {
		present []*nats.RawStreamMsg
		want    []int
	}{
		{[]*nats.RawStreamMsg{older, nil, nil}, []int{0, 1, 2}},
		{[]*nats.RawStreamMsg{newer, older, nil}, []int{1}},
		{[]*nats.RawStreamMsg{newer, nil, own}, []int{1}},
		{[]*nats.RawStreamMsg{own, stored, nil}, []int{2}},
	} {
		if got := b.Missing(c.present); !slices.Equal(got, c.want) {
			t.Errorf("%v are missing, want %v", got, c.want)
		}
	}
}
