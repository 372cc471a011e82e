package embedded

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"carstate/internal/store/codec"
)

// The server is not made for damaged blocks: it may even turn in circles over one for
// ever. So ROADS, whose damage ends no start, is looked through before it starts, and
// taken away if it is damaged. What is whole of it is stored again.

// SalvageRoads reports whether ROADS is damaged. If so, it removes the stream and
// returns the newest whole record of each tile, by its subject. was is what the stream held at a clean
// stop, zero after a crash.
func SalvageRoads(dir string, tolerated TornWrites, was StreamEnd) (salvaged map[string][]byte, damaged bool, err error) {
	at := StreamDir(dir, codec.Roads)
	if _, err := os.Stat(at); absent(err) {
		return nil, was.Records > 0, nil
	}
	tiles := make(map[string]bool)
	whole, err := readRoadBlocks(dir, tolerated, func(r storedRecord) { tiles[string(r.subject)] = true })
	if err != nil {
		return nil, false, err
	}
	if whole && isDescribed(at) && uint64(len(tiles)) >= was.Records {
		return nil, false, nil
	}
	newest := make(map[string]storedRecord)
	_, err = readRoadBlocks(dir, tolerated, func(r storedRecord) {
		if subject := string(r.subject); newest[subject].seq < r.seq {
			r.payload = bytes.Clone(r.payload)
			newest[subject] = r
		}
	})
	if err != nil {
		return nil, true, err
	}
	salvaged = make(map[string][]byte)
	for subject, r := range newest {
		salvaged[subject] = r.payload
	}
	if err := os.RemoveAll(at); err != nil {
		return nil, true, unusableDir(dir, "written", "the records of stream "+codec.Roads, err)
	}
	return salvaged, true, nil
}

// readRoadBlocks calls visit for every sound record of ROADS, also behind one that is
// damaged, and reports whether there is no such one.
func readRoadBlocks(dir string, tolerated TornWrites, visit func(storedRecord)) (whole bool, err error) {
	blocks, newest, err := ListBlocks(filepath.Join(StreamDir(dir, codec.Roads), "msgs"))
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, unusableDir(dir, "read", "the records of stream "+codec.Roads, err)
	}
	whole = true
	for _, n := range slices.Sorted(maps.Keys(blocks)) {
		content, err := os.ReadFile(blocks[n])
		if err != nil {
			return false, unusableDir(dir, "read", "a block of stream "+codec.Roads, err)
		}
		b := newBlock(codec.Roads, n, content)
		sound := true
		for at := 0; at < len(content); {
			r, ok := b.record(at)
			if ok {
				if !r.erased {
					visit(r)
				}
				at += r.bytes
				continue
			}
			if mayTear := tolerated == TornAnywhere || tolerated == TornNewest && n == newest; sound && mayTear && b.torn(at) {
				break // the server cuts it off
			}
			sound = false
			at++
		}
		whole = whole && sound
	}
	return whole, nil
}

// isDescribed reports whether the server will find a stream.
func isDescribed(stream string) bool {
	text, err := os.ReadFile(filepath.Join(stream, descriptionFile))
	if err != nil || !json.Valid(text) {
		return false
	}
	sum, err := os.ReadFile(filepath.Join(stream, descriptionSumFile))
	return err == nil && bytes.Equal(sum, descriptionSum(filepath.Base(stream), text))
}
