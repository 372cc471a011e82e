package embedded

import (
	"encoding/hex"
	"slices"
	"testing"

	"carstate/internal/store/codec"
)

// FuzzBlock reads blocks of the engine's files: whatever stands in one, reading
// ends within it.
func FuzzBlock(f *testing.F) {
	f.Add([]byte{30, 0, 0, 0})
	f.Add(make([]byte, 64))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 'a'})
	// Sound records, which no chance would make, for their hashes.
	// The first is state.0.CARA, the second cursor.0 with headers.
	first, second := unhex(f, "400000800100000000000000000064a7b3b6e00d0c0073746174652e302e434152410c0000004e4154532f312e300d0a0d0a02780dc5ee0c829174e491dccb07"), unhex(f, "4f0000800200000000000000000064a7b3b6e00d0800637572736f722e301e0000004e4154532f312e300d0a4e6174732d42617463682d49643a20620d0a0d0a027b7d387a93107eaeb37ab6a6d999")
	damaged := slices.Clone(first)
	damaged[blockHeader]++
	for _, content := range [][]byte{
		first, slices.Concat(first, second), slices.Concat(first, second[:len(second)-3]),
		slices.Concat(first, make([]byte, 2*sectorBytes)), slices.Concat(damaged, second),
	} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		b := newBlock(codec.States, 1, content)
		read := 0
		at, sound := b.firstBad(func(r storedRecord) {
			read += r.bytes
			if len(r.subject) > len(content) || len(r.payload) > len(content) {
				t.Error("a record is longer than its block")
			}
		})
		if at != read || at > len(content) {
			t.Errorf("the first bad record is at %d of %d, behind %d that were read", at, len(content), read)
		}
		if !sound {
			_ = b.torn(at)
		}
	})
}

func unhex(f *testing.F, text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		f.Fatal(err)
	}
	if r, ok := newBlock(codec.States, 1, b).record(0); !ok || r.bytes != len(b) {
		f.Fatalf("%s is no sound record", text)
	}
	return b
}
