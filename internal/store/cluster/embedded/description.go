package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"carstate/internal/store/codec"

	"github.com/minio/highwayhash"
)

// The files in which the server keeps a stream's configuration, and its checksum.
const (
	descriptionFile    = "meta.inf"
	descriptionSumFile = "meta.sum"
)

// CompleteDescriptions writes the checksum of each stream's description that has
// none. The server writes it after the description when it makes a stream, and never
// again: a stream whose making was cut off between the two takes records, and is left
// out without a word by the start after the next. A checksum that does not match
// stays: that is damage.
func CompleteDescriptions(dir string) error {
	for _, name := range codec.Streams {
		at := StreamDir(dir, name)
		if _, err := os.Stat(filepath.Join(at, descriptionSumFile)); !absent(err) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(at, descriptionFile))
		if absent(err) || err == nil && !json.Valid(text) {
			continue // it is not made yet, or damaged, which is found elsewhere
		}
		if err != nil {
			return unusableDir(dir, "read", "the description of stream "+name, err)
		}
		if err := writeFileSynced(filepath.Join(at, descriptionSumFile), descriptionSum(name, text)); err != nil {
			return fmt.Errorf("the description of stream %s cannot be completed: %w", name, Plain(err))
		}
	}
	return nil
}

// descriptionSum is the checksum as the server writes it: HighwayHash-64 under the
// SHA-256 of the stream's name, in hexadecimal.
func descriptionSum(name string, text []byte) []byte {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	_, _ = h.Write(text) // it never fails
	return []byte(hex.EncodeToString(h.Sum(nil)))
}
