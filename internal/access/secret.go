package access

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"net/url"
	"regexp"
	"strings"
)

// Kind is the prefix of a secret. It shows people and secret scanners what the secret is for.
type Kind string

// The kinds of secrets that the service issues.
const (
	TokenKind    Kind = "cst_"    // a developer's access token
	SandboxKind  Kind = "cstest_" // an access token that sees only the sandbox
	SourceKind   Kind = "css_"    // a source's key
	OperatorKind Kind = "cso_"    // a named operator's key
	AdminKind    Kind = "csa_"    // the admin key, which is in the data directory
	BackupKind   Kind = "csb_"    // the key with which the service authenticates its backups
)

// anyKind is a regular expression that matches every kind.
const anyKind = string("(" + TokenKind + "|" + SandboxKind + "|" + SourceKind + "|" + OperatorKind + "|" +
	AdminKind + "|" + BackupKind + ")")

// A secret consists of its kind (a prefix such as cst_), randomLength base62 characters from
// crypto/rand (178 bits), and checksumLength base62 characters with the CRC-32 of all preceding
// bytes.
const (
	randomLength   = 30
	checksumLength = 6
)

// Length returns the length of a secret of the kind, in bytes.
func (k Kind) Length() int { return len(k) + randomLength + checksumLength }

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Hash is the SHA-256 of a secret. The service stores a secret only in this form.
type Hash [sha256.Size]byte

// Errors of [Check].
var (
	ErrMalformed = errors.New("it does not have the form of such a secret")
	ErrChecksum  = errors.New("its checksum does not match: it is mistyped or cut off")
)

// NewSecret generates a secret of the kind and returns it with its hash. The caller shows the
// secret once and does not keep it.
func NewSecret(kind Kind) (secret string, hash Hash) {
	b := make([]byte, 0, kind.Length())
	b = append(b, kind...)
	b = appendRandom(b, randomLength)
	sum := checksum(b)
	b = append(b, sum[:]...)
	return string(b), HashOf(b)
}

// HashOf returns the hash of a secret.
func HashOf[T string | []byte](secret T) Hash { return sha256.Sum256([]byte(secret)) }

// Check checks the form of a secret of the kind, without looking it up. It returns nil if the form
// and the checksum are right, [ErrMalformed] if the prefix, the length or a character is wrong, and
// [ErrChecksum] if only the checksum is wrong.
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

// appendRandom appends n uniformly distributed random base62 characters.
func appendRandom(b []byte, n int) []byte {
	// A byte with a value of fair or more is not used; otherwise some characters would be more
	// frequent than others.
	const fair = 256 / 62 * 62
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

// checksum returns the CRC-32 (IEEE) of b in base62, most significant digit first.
func checksum(b []byte) (digits [checksumLength]byte) {
	sum := crc32.ChecksumIEEE(b)
	for i := checksumLength - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return digits
}

// idLength is the number of random characters in a public identifier.
const idLength = 12

func newTokenID() string { return tokenID + string(appendRandom(nil, idLength)) }

var mostOfSecret = regexp.MustCompile(anyKind + "[0-9A-Za-z]{20}")

// HoldsSecret reports whether a text contains a secret or most of one: a prefix such as cst_ and at
// least 20 base62 characters after it. It finds secrets that were entered into a wrong field.
func HoldsSecret(s string) bool { return mostOfSecret.MatchString(s) }

// errNameIsSecret refuses a name with a secret, because names appear in logs, metrics and pages.
var errNameIsSecret = errors.New("this looks like a token or a key: a name must not hold one")

// partOfSecret also matches underscores, because another secret may follow without a separator.
var partOfSecret = regexp.MustCompile(anyKind + "[0-9A-Za-z_]+")

// Redact replaces each prefix such as cst_ in s, together with the letters, digits and underscores
// after it, by a mark such as "CST…". It is for texts of unknown origin, such as an error from a
// library. A prefix with no such character after it is not replaced, because it is no secret.
func Redact(s string) string {
	return partOfSecret.ReplaceAllStringFunc(s, func(run string) string {
		kind, _, _ := strings.Cut(run, "_")
		return strings.ToUpper(kind) + "…"
	})
}

// RedactLogins replaces the login (user and password) in each URL of a comma-separated list by
// asterisks. A URL with a login also loses its query and fragment. If RedactLogins cannot parse one
// of the URLs, or one has no host, it replaces the whole list.
func RedactLogins(urls string) string {
	const hidden = "****"
	all := strings.Split(urls, ",")
	for i, text := range all {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return hidden
		}
		if u.User != nil {
			all[i] = u.Scheme + "://" + hidden + "@" + u.Host + u.Path
		}
	}
	return strings.Join(all, ",")
}
