package access

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"strings"
)

// Kind is the prefix of a secret, which tells people and scanners what it is.
type Kind string

// The kinds of secret that the service hands out.
const (
	TokenKind    Kind = "cst_"    // a developer's access token
	SandboxKind  Kind = "cstest_" // an access token that sees the sandbox only
	SourceKind   Kind = "css_"    // a source's key
	OperatorKind Kind = "cso_"    // a named operator's key
	AdminKind    Kind = "csa_"    // the key of the data directory
	BackupKind   Kind = "csb_"    // the key under which the service authenticates its backups
)

var kinds = [...]Kind{TokenKind, SandboxKind, SourceKind, OperatorKind, AdminKind, BackupKind}

// A secret is its kind, randomLength base62 characters from crypto/rand
// (178 bits), and the CRC-32 of all that in checksumLength base62 characters.
const (
	randomLength   = 30
	checksumLength = 6
)

// Length is how many bytes a secret of the kind has.
func (k Kind) Length() int { return len(k) + randomLength + checksumLength }

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Hash is the SHA-256 of a secret, the only form in which one is stored.
type Hash [sha256.Size]byte

// Errors of [Check].
var (
	ErrMalformed = errors.New("it does not have the form of such a secret")
	ErrChecksum  = errors.New("its checksum does not match: it is mistyped or cut off")
)

// NewSecret makes a secret of the kind and its hash. The caller shows the
// secret once and forgets it.
func NewSecret(kind Kind) (secret string, hash Hash) {
	b := make([]byte, 0, kind.Length())
	b = append(b, kind...)
	b = appendRandom(b, randomLength)
	sum := checksum(b)
	b = append(b, sum[:]...)
	return string(b), HashOf(b)
}

// HashOf hashes a secret.
func HashOf[T string | []byte](secret T) Hash { return sha256.Sum256([]byte(secret)) }

// Check tells whether a text can be a secret of the kind, without looking
// anything up: [ErrMalformed] or [ErrChecksum] if not.
func Check(kind Kind, s []byte) error {
	if len(s) != kind.Length() || string(s[:len(kind)]) != string(kind) {
		return ErrMalformed
	}
	for _, c := range s[len(kind):] {
		if c-'0' > 9 && c-'A' > 25 && c-'a' > 25 {
			return ErrMalformed
		}
	}
	body := len(s) - checksumLength
	if want := checksum(s[:body]); string(want[:]) != string(s[body:]) {
		return ErrChecksum
	}
	return nil
}

// appendRandom appends n uniformly random base62 characters.
func appendRandom(b []byte, n int) []byte {
	const fair = 256 / 62 * 62 // bytes from here on would favour some letters
	var buf [64]byte
	for n > 0 {
		rand.Read(buf[:])
		for _, r := range buf {
			if r < fair && n > 0 {
				b = append(b, base62[r%62])
				n--
			}
		}
	}
	return b
}

// checksum is the CRC-32 (IEEE) of b in base62, most significant digit first.
func checksum(b []byte) (digits [checksumLength]byte) {
	sum := crc32.ChecksumIEEE(b)
	for i := checksumLength - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return digits
}

// idLength is how many random characters a public identifier has.
const idLength = 12

// newID makes a public identifier: a prefix and random characters.
func newID(prefix string) string {
	return prefix + string(appendRandom(nil, idLength))
}

// leastSecret is how much of a secret's random part makes a text look like one.
const leastSecret = 20

// HoldsSecret reports whether a text holds what looks like a secret, or most of
// one: somebody has put it into the wrong field.
func HoldsSecret(s string) bool {
	for _, k := range kinds {
		for rest := s; ; {
			_, after, ok := strings.Cut(rest, string(k))
			if !ok {
				break
			}
			run := 0
			for run < len(after) && strings.IndexByte(base62, after[run]) >= 0 {
				run++
			}
			if run >= leastSecret {
				return true
			}
			rest = after
		}
	}
	return false
}

// errNameIsSecret refuses a name that would carry a secret to wherever names go.
var errNameIsSecret = errors.New("this looks like a token or a key: a name must not hold one")

// Redact replaces every secret-looking run in s, for texts whose origin is not
// known, such as an error from a library. A prefix that nothing follows stays: it
// tells how secrets begin, and is none.
func Redact(s string) string {
	for _, k := range kinds {
		for from := 0; ; {
			i := strings.Index(s[from:], string(k))
			if i < 0 {
				break
			}
			i += from
			j := i + len(k)
			// The underscore belongs to the run: a second secret may
			// follow without a gap.
			for j < len(s) && (s[j] == '_' || strings.IndexByte(base62, s[j]) >= 0) {
				j++
			}
			if from = j; j == i+len(k) {
				continue
			}
			mark := strings.ToUpper(string(k[:len(k)-1])) + "…"
			s, from = s[:i]+mark+s[j:], i+len(mark)
		}
	}
	return s
}
