package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"math/big"
	"net/url"
	"regexp"
	"strings"
)

// Kind is the prefix of a secret, for people and secret scanners.
type Kind string

const (
	TokenKind    Kind = "cst_"    // a developer's
	SandboxKind  Kind = "cstest_" // sees only the sandbox
	SourceKind   Kind = "css_"
	OperatorKind Kind = "cso_"
	AdminKind    Kind = "csa_" // kept in the data directory
	BackupKind   Kind = "csb_" // authenticates the service's backups
)

const anyKind = string("(" + TokenKind + "|" + SandboxKind + "|" + SourceKind + "|" + OperatorKind + "|" +
	AdminKind + "|" + BackupKind + ")")

// A secret is its kind, 178 random bits in base62, and the CRC-32 of both.
const (
	randomLength   = 30
	checksumLength = 6
)

func (k Kind) Length() int { return len(k) + randomLength + checksumLength }

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Hash is the SHA-256 of a secret, the only form that is stored.
type Hash [sha256.Size]byte

var (
	ErrMalformed = errors.New("it does not have the form of such a secret")
	ErrChecksum  = errors.New("its checksum does not match: it is mistyped or cut off")
)

func NewSecret(kind Kind) (secret string, hash Hash) {
	b := make([]byte, 0, kind.Length())
	b = append(b, kind...)
	b = appendRandom(b, randomLength)
	sum := checksum(b)
	b = append(b, sum[:]...)
	return string(b), HashOf(b)
}

func HashOf[T string | []byte](secret T) Hash { return sha256.Sum256([]byte(secret)) }

// Check checks only the form: it returns [ErrMalformed] or [ErrChecksum].
func Check(kind Kind, s []byte) error {
	rest, ok := bytes.CutPrefix(s, []byte(kind))
	if !ok || len(s) != kind.Length() || !IsBase62(rest) {
		return ErrMalformed
	}
	body := len(s) - checksumLength
	if want := checksum(s[:body]); string(want[:]) != string(s[body:]) {
		return ErrChecksum
	}
	return nil
}

func IsBase62(b []byte) bool { return len(bytes.TrimLeft(b, base62)) == 0 }

func appendRandom(b []byte, n int) []byte {
	for range n {
		i, _ := rand.Int(rand.Reader, big.NewInt(int64(len(base62)))) // rand.Reader never fails
		b = append(b, base62[i.Int64()])
	}
	return b
}

func checksum(b []byte) (digits [checksumLength]byte) {
	sum := crc32.ChecksumIEEE(b)
	for i := checksumLength - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return digits
}

const idLength = 12

func newTokenID() string { return tokenID + string(appendRandom(nil, idLength)) }

var mostOfSecret = regexp.MustCompile(anyKind + "[0-9A-Za-z]{20}")

// HoldsSecret also finds a secret whose end is missing.
func HoldsSecret(s string) bool { return mostOfSecret.MatchString(s) }

// errNameIsSecret: names appear in logs, metrics and pages.
var errNameIsSecret = errors.New("this looks like a token or a key: a name must not hold one")

// partOfSecret includes underscores, because another secret may follow.
var partOfSecret = regexp.MustCompile(anyKind + "[0-9A-Za-z_]+")

// Redact replaces what looks like a secret by a mark such as "CST…", in texts of unknown origin.
func Redact(s string) string {
	return partOfSecret.ReplaceAllStringFunc(s, func(run string) string {
		kind, _, _ := strings.Cut(run, "_")
		return strings.ToUpper(kind) + "…"
	})
}

// RedactLogins hides the login in each of the comma-separated URLs, and drops the query of a URL
// with one. If one cannot be parsed or has no host, it hides the whole list.
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
