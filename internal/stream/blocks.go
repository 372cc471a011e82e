package stream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"
)

// The server does not refuse a damaged store. After a clean stop it trusts its
// index and looks at no record until one is read; after a crash it cuts each
// block off at the first record that it cannot read, and says little. So the
// blocks are read here before it starts, while nothing is changed yet.
//
// A block is a file N.blk of records, one after the other:
//
//	uint32 length of the record, top bit set if it has headers
//	uint64 sequence, top bits set for what was erased
//	int64  time
//	uint16 length of the subject, subject
//	uint32 length of the headers, headers (only with the top bit)
//	payload
//	8 bytes HighwayHash of all but the lengths, keyed by stream and block
//
// What this cannot see: a block that is gone altogether, and records missing
// from the end of the newest one, which look like a write that a power cut tore.
// Both are seen after a clean stop, which leaves a note of what there was
// ([Engine.checkWhole]).
const (
	blockHeader     = 22
	blockHash       = highwayhash.Size64
	hasHeadersBit   = 1 << 31
	erasedBits      = 3 << 62
	maxBlockSubject = 300
	sectorBytes     = 512
)

// tornWrites says where the end of a block may be torn.
type tornWrites int

const (
	tornNowhere  tornWrites = iota // the engine was closed in order
	tornNewest                     // the newest block: a commit that was not acknowledged
	tornAnywhere                   // the operator chose not to sync each write
)

// checkBlocks reads every record of every stream.
func checkBlocks(ctx context.Context, dir string, tolerated tornWrites) error {
	for _, stream := range streamNames {
		blocks, newest, err := listBlocks(filepath.Join(streamDir(dir, stream), "msgs"))
		if err != nil && !absent(err) {
			return unreadableDir(dir, "the records of stream "+stream, err)
		}
		if err != nil {
			return damagedDir(dir, "the records of stream "+stream+" are missing")
		}
		for _, n := range slices.Sorted(maps.Keys(blocks)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			content, err := os.ReadFile(blocks[n])
			if err != nil {
				return unreadableDir(dir, fmt.Sprintf("block %d of stream %s", n, stream), err)
			}
			b := newBlock(stream, n, content)
			bad, ok := b.firstBad()
			if b.newer != nil {
				return fmt.Errorf("the data directory %s was written by a newer carstate (%w): use that version", dir, b.newer)
			}
			mayTear := tolerated == tornAnywhere || tolerated == tornNewest && n == newest
			if !ok && !(mayTear && b.torn(bad)) {
				return damagedDir(dir, fmt.Sprintf("stream %s, block %d, byte %d", stream, n, bad))
			}
		}
	}
	return nil
}

// listBlocks finds a stream's blocks by number.
func listBlocks(dir string) (blocks map[int]string, newest int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	blocks = make(map[int]string)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".blk")
		if n, err := strconv.Atoi(name); ok && err == nil {
			blocks[n] = filepath.Join(dir, e.Name())
			newest = max(newest, n)
		}
	}
	return blocks, newest, nil
}

type block struct {
	content []byte
	hash    hash.Hash
	sum     [blockHash]byte
	newer   error // of a sound record that is of a later version than ours
}

func newBlock(stream string, n int, content []byte) *block {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, n))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	return &block{content: content, hash: h}
}

// firstBad finds the first place that holds no sound record.
func (b *block) firstBad() (at int, ok bool) {
	for at < len(b.content) {
		n := b.record(at)
		if n == 0 {
			return at, false
		}
		at += n
	}
	return at, true
}

// record returns the length of the record at a place, 0 if there is no sound
// one.
func (b *block) record(at int) int {
	r := b.content[at:]
	if len(r) < blockHeader+blockHash {
		return 0
	}
	length := binary.LittleEndian.Uint32(r)
	headers := length&hasHeadersBit != 0
	n, subject := int(length&^hasHeadersBit), int(binary.LittleEndian.Uint16(r[20:]))
	if n > len(r) || subject > maxBlockSubject || n < blockHeader+subject+blockHash {
		return 0
	}
	text, rest := r[blockHeader:blockHeader+subject], r[blockHeader+subject:n-blockHash]
	payload := rest
	if headers {
		if len(rest) < 4 {
			return 0
		}
		h := int(binary.LittleEndian.Uint32(rest))
		rest = rest[4:]
		if h > len(rest) {
			return 0
		}
		payload = rest[h:]
	}
	b.hash.Reset()
	b.hash.Write(r[4:20])
	b.hash.Write(text)
	b.hash.Write(rest)
	if !bytes.Equal(b.hash.Sum(b.sum[:0]), r[n-blockHash:n]) {
		return 0
	}
	if binary.LittleEndian.Uint64(r[4:])&erasedBits == 0 {
		// The server's hash leaves out the length of the headers.
		switch _, err := unseal(string(text), payload); {
		case errors.Is(err, errNewer):
			b.newer = err
		case err != nil:
			return 0
		}
	}
	return n
}

// torn tells a write that a power cut tore from damage done to a record that
// was once whole. Of a torn write some sectors never arrived: the end is
// missing, or there are zeros. Damage has sound records behind it.
func (b *block) torn(at int) bool {
	for s := (at + sectorBytes - 1) / sectorBytes * sectorBytes; s+sectorBytes <= len(b.content); s += sectorBytes {
		if len(bytes.Trim(b.content[s:s+sectorBytes], "\x00")) == 0 {
			return true
		}
	}
	for at++; at < len(b.content); at++ {
		if b.record(at) != 0 {
			return false
		}
	}
	return true
}
