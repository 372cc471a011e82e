package query

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// requestIDs generates the values of X-Request-Id, which are consecutive numbers, encrypted with a
// random key of this process. An ID is unique. It reveals nothing about the request, nor how many
// requests of other clients came before it.
type requestIDs struct {
	block cipher.Block
	last  atomic.Uint64
}

func newRequestIDs() *requestIDs {
	var key [16]byte
	rand.Read(key[:]) // ends the process if it fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the length of the key is right
	}
	return &requestIDs{block: block}
}

func (r *requestIDs) nextID() uint64 { return r.last.Add(1) }

// appendID appends the ID with number n to b: 32 hexadecimal digits.
func (r *requestIDs) appendID(b []byte, n uint64) []byte {
	start := len(b)
	b = append(b, make([]byte, aes.BlockSize)...)
	block := b[start:]
	binary.BigEndian.PutUint64(block, n)
	r.block.Encrypt(block, block)
	high, low := binary.BigEndian.Uint64(block), binary.BigEndian.Uint64(block[8:])
	return appendHex(appendHex(b[:start], high), low)
}

// appendHex appends n as 16 hexadecimal digits.
func appendHex(b []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[n>>shift&15])
	}
	return b
}
