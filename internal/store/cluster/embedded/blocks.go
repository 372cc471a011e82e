package embedded

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

	"carstate/internal/store/codec"
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
// Both are seen after a clean stop, which leaves a note of what there was, and
// after a crash a stream's newest records are missed by the heartbeats of the
// others ([Newest]).
const (
	blockHeader     = 22
	blockHash       = highwayhash.Size64
	hasHeadersBit   = 1 << 31
	erasedBits      = 3 << 62
	maxBlockSubject = 300
	sectorBytes     = 512

	// MaxBlockBytes is the size of the engine's largest blocks.
	MaxBlockBytes = 8 << 20
)

// TornWrites says where the end of a block may be torn.
type TornWrites int

// Places where writes may be torn.
const (
	TornNowhere  TornWrites = iota // the engine was closed in order
	TornNewest                     // the newest block, or where a batch was under way: a commit that was not acknowledged
	TornAnywhere                   // the operator chose not to sync each write
)

// CheckBlocks reads every record of every stream but ROADS, several blocks at a time. What
// it reads of STATES goes to p, which may be nil, in the order in which it was
// stored; what heartbeats say of other streams goes to w.
func CheckBlocks(ctx context.Context, dir string, tolerated TornWrites, p *Preload, w Newest) error {
	// A batch may have begun in a block before the newest: how many before.
	torn := make(map[string]int)
	if tolerated == TornNewest {
		under, err := findInterrupted(dir)
		if err != nil {
			return err
		}
		for _, b := range under {
			torn[b.Stream] = b.blocks()
		}
	}
	for _, stream := range codec.WholeStreams {
		blocks, newest, err := ListBlocks(filepath.Join(StreamDir(dir, stream), "msgs"))
		if err != nil && !absent(err) {
			return unusableDir(dir, "read", "the records of stream "+stream, err)
		}
		if err != nil {
			return DamagedDir(dir, "the records of stream "+stream+" are missing")
		}
		numbers := slices.Sorted(maps.Keys(blocks))
		if len(numbers) > 0 {
			newest = numbers[max(0, len(numbers)-1-torn[stream])]
		}
		read := func(i int) (f found, err error) {
			n := numbers[i]
			content, err := os.ReadFile(blocks[n])
			if err != nil {
				return f, unusableDir(dir, "read", fmt.Sprintf("block %d of stream %s", n, stream), err)
			}
			heartbeat := codec.HeartbeatSubject(stream)
			visit := func(r storedRecord) {
				if string(r.subject) == heartbeat && !r.erased {
					w.witness(r)
				}
				if stream == codec.States && p != nil {
					f.add(r)
				}
			}
			b := newBlock(stream, n, content)
			bad, ok := b.firstBad(visit)
			if b.newer != nil {
				return f, fmt.Errorf("the data directory %s was written by a newer carstate (%w): use that version", dir, b.newer)
			}
			mayTear := tolerated == TornAnywhere || tolerated == TornNewest && n >= newest
			if !ok && !(mayTear && b.torn(bad)) {
				return f, DamagedDir(dir, fmt.Sprintf("stream %s, block %d, byte %d", stream, n, bad))
			}
			return f, nil
		}
		if err := inOrder(ctx, len(numbers), read, p.take); err != nil {
			return err
		}
	}
	return nil
}

// ListBlocks finds a stream's blocks by number.
func ListBlocks(dir string) (blocks map[int]string, newest int, err error) {
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

// storedRecord is a sound record of a block. What it refers to is the block's.
type storedRecord struct {
	bytes            int // that it takes in the block
	seq              uint64
	erased           bool  // it says that another one is gone, or is itself
	time             int64 // when the server took it, Unix ns
	subject, payload []byte
	headers          []byte // as NATS writes them; often none
}

// firstBad finds the first place that holds no sound record, and calls visit for
// those before it.
func (b *block) firstBad(visit func(storedRecord)) (at int, ok bool) {
	for at < len(b.content) {
		r, ok := b.record(at)
		if !ok {
			return at, false
		}
		visit(r)
		at += r.bytes
	}
	return at, true
}

// record returns the record at a place, false if there is no sound one.
func (b *block) record(at int) (storedRecord, bool) {
	r := b.content[at:]
	if len(r) < blockHeader+blockHash {
		return storedRecord{}, false
	}
	length := binary.LittleEndian.Uint32(r)
	headers := length&hasHeadersBit != 0
	n, subject := int(length&^hasHeadersBit), int(binary.LittleEndian.Uint16(r[20:]))
	if n > len(r) || subject > maxBlockSubject || n < blockHeader+subject+blockHash {
		return storedRecord{}, false
	}
	text, rest := r[blockHeader:blockHeader+subject], r[blockHeader+subject:n-blockHash]
	payload, head := rest, []byte(nil)
	if headers {
		if len(rest) < 4 {
			return storedRecord{}, false
		}
		h := int(binary.LittleEndian.Uint32(rest))
		rest = rest[4:]
		if h > len(rest) {
			return storedRecord{}, false
		}
		head, payload = rest[:h], rest[h:]
	}
	b.hash.Reset()
	b.hash.Write(r[4:20])
	b.hash.Write(text)
	b.hash.Write(rest)
	if !bytes.Equal(b.hash.Sum(b.sum[:0]), r[n-blockHash:n]) {
		return storedRecord{}, false
	}
	seq := binary.LittleEndian.Uint64(r[4:])
	erased := seq&erasedBits != 0
	if !erased {
		// The server's hash leaves out the length of the headers.
		switch _, err := codec.Unseal(string(text), payload); {
		case errors.Is(err, codec.ErrNewer):
			b.newer = err
		case err != nil:
			return storedRecord{}, false
		}
	}
	return storedRecord{
		bytes: n, seq: seq &^ erasedBits, erased: erased, time: int64(binary.LittleEndian.Uint64(r[12:])),
		subject: text, payload: payload, headers: head,
	}, true
}

// torn tells a write that a power cut tore from damage done to a record that
// was once whole. Of a torn write some sectors never arrived: the end is
// missing, or there are zeros. Damage has sound records behind it.
func (b *block) torn(at int) bool {
	// Of the sector in which it begins, the part before was there already.
	if end := min(len(b.content), (at/sectorBytes+1)*sectorBytes); len(bytes.Trim(b.content[at:end], "\x00")) == 0 {
		return true
	}
	for s := (at + sectorBytes - 1) / sectorBytes * sectorBytes; s+sectorBytes <= len(b.content); s += sectorBytes {
		if len(bytes.Trim(b.content[s:s+sectorBytes], "\x00")) == 0 {
			return true
		}
	}
	for at++; at < len(b.content); at++ {
		if _, ok := b.record(at); ok {
			return false
		}
	}
	return true
}
