package access_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/carstate/internal/access"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var kinds = []access.Kind{access.TokenKind, access.SandboxKind, access.SourceKind, access.OperatorKind,
	access.AdminKind, access.BackupKind}

func TestSecretForm(t *testing.T) {
	form := regexp.MustCompile(`^cs(t|test|s|o|a|b)_[0-9A-Za-z]{36}$`)
	for _, kind := range kinds {
		seen := make(map[string]bool)
		letters := make(map[byte]int)
		for range 500 {
			secret, hash := access.NewSecret(kind)
			if len(secret) != kind.Length() || !form.MatchString(secret) || !strings.HasPrefix(secret, string(kind)) {
				t.Fatalf("%s secret: got a wrong form of %d bytes, want %d", kind, len(secret), kind.Length())
			}
			if seen[secret] {
				t.Fatalf("%s secrets: got one twice, want 500 different ones", kind)
			}
			seen[secret] = true
			if hash != access.HashOf(secret) || hash != access.HashOf([]byte(secret)) {
				t.Fatalf("the hash of a %s secret: got %x, want %x", kind, hash, access.HashOf(secret))
			}
			if err := access.Check(kind, []byte(secret)); err != nil {
				t.Fatalf("a new %s secret: got %v, want no error", kind, err)
			}
			for i := range 30 {
				letters[secret[len(kind)+i]]++
			}
		}
		// 242 are expected; six standard deviations are about 93.
		for i := range len(base62) {
			if n := letters[base62[i]]; n < 149 || n > 335 {
				t.Errorf("%s: got letter %c %d times of 15,000, want 149 to 335", kind, base62[i], n)
			}
		}
	}
}

// Secrets are printed on paper and recognized by other people's scanners.
func TestSecretKnown(t *testing.T) {
	for secret, want := range map[string]error{
		"cst_0123456789ABCDEFGHIJKLMNOPQRST" + "34Indg": nil,
		"cst_0123456789ABCDEFGHIJKLMNOPQRST" + "34Indh": access.ErrChecksum,
		"css_0123456789ABCDEFGHIJKLMNOPQRST" + "34Indg": access.ErrMalformed,
	} {
		if err := access.Check(access.TokenKind, []byte(secret)); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", secret, err, want)
		}
	}
}

func TestSecretOtherKind(t *testing.T) {
	for _, made := range kinds {
		secret, _ := access.NewSecret(made)
		for _, asked := range kinds {
			err := access.Check(asked, []byte(secret))
			if (made == asked) != (err == nil) {
				t.Errorf("a %s secret as %s: got %v, want it accepted %t", made, asked, err, made == asked)
			}
		}
	}
}

func TestSecretOneCharacterWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		secret, _ := access.NewSecret(kind)
		b := []byte(secret)
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		c := rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte(base62))).Filter(func(c byte) bool {
			return c != b[at]
		}).Draw(t, "c")
		b[at] = c
		if access.Check(kind, b) == nil {
			t.Fatalf("byte %d changed to %q: got it accepted, want an error", at, c)
		}
	})
}

func TestSecretTwoNeighboursSwapped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret, _ := access.NewSecret(access.TokenKind)
		b := []byte(secret)
		at := rapid.IntRange(0, len(b)-2).Draw(t, "at")
		b[at], b[at+1] = b[at+1], b[at]
		if err := access.Check(access.TokenKind, b); (err == nil) != (string(b) == secret) {
			t.Fatalf("a swap at %d: got %v, want it accepted %t", at, err, string(b) == secret)
		}
	})
}

func TestSecretCutOrExtended(t *testing.T) {
	secret, _ := access.NewSecret(access.TokenKind)
	for n := range len(secret) {
		if err := access.Check(access.TokenKind, []byte(secret[:n])); !errors.Is(err, access.ErrMalformed) {
			t.Errorf("a secret cut to %d bytes: got %v, want %v", n, err, access.ErrMalformed)
		}
		if err := access.Check(access.TokenKind, []byte(secret[n+1:])); !errors.Is(err, access.ErrMalformed) {
			t.Errorf("a secret without its first %d bytes: got %v, want %v", n+1, err, access.ErrMalformed)
		}
	}
	for _, more := range []string{"0", " ", "\n", "\x00", "é"} {
		if err := access.Check(access.TokenKind, []byte(secret+more)); !errors.Is(err, access.ErrMalformed) {
			t.Errorf("a secret with %q behind it: got %v, want %v", more, err, access.ErrMalformed)
		}
	}
}

func TestRedact(t *testing.T) {
	token, _ := access.NewSecret(access.TokenKind)
	key, _ := access.NewSecret(access.SourceKind)
	admin, _ := access.NewSecret(access.AdminKind)
	sandbox, _ := access.NewSecret(access.SandboxKind)
	for in, want := range map[string]string{
		"":                                       "",
		"nothing to hide":                        "nothing to hide",
		token:                                    "CST…",
		"GET /?access_token=" + token + "&vid=A": "GET /?access_token=CST…&vid=A",
		key + " and " + admin + " and " + key:    "CSS… and CSA… and CSS…",
		"cut: " + token[:12]:                     "cut: CST…",
		"glued:" + token + token:                 "glued:CST…",
		"glued:" + token + admin + "&a=b":        "glued:CST…&a=b",
		"cst_":                                   "cst_",
		"begins with cst_…, not with css_":       "begins with cst_…, not with css_",
		"begins with cst_ as " + token:           "begins with cst_ as CST…",
		"vid=A&access_token=" + sandbox:          "vid=A&access_token=CSTEST…",
		"glued:" + sandbox + token + sandbox:     "glued:CSTEST…",
		"glued:" + token + sandbox + "\n":        "glued:CST…\n",
	} {
		if got := access.Redact(in); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRedactLeavesNoSecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret, _ := access.NewSecret(rapid.SampledFrom(kinds).Draw(t, "kind"))
		text := rapid.String().Draw(t, "before") + secret + rapid.String().Draw(t, "after")
		got := access.Redact(text)
		if strings.Contains(got, secret[7:19]) {
			t.Fatalf("%q: got %q, want no part of the secret", text, got)
		}
		if access.Redact(got) != got {
			t.Fatalf("a second time: got %q, want %q", access.Redact(got), got)
		}
	})
}

// The text of a rate may differ if its number begins with 0 or +.
func FuzzSecrets(f *testing.F) {
	for _, k := range kinds {
		f.Add(string(k) + strings.Repeat("0", 36))
	}
	f.Add("cst_cst_" + strings.Repeat("A", 40) + "_css_")
	f.Add("Bearer cstest_")
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range kinds {
			if access.Check(k, []byte(text)) == nil && (len(text) != k.Length() || !strings.HasPrefix(text, string(k)) ||
				!access.HoldsSecret(text)) {
				t.Errorf("%q: got it accepted as a %s secret, want an error", text, k)
			}
		}
		if clean := access.Redact(text); access.HoldsSecret(clean) {
			t.Errorf("%q: got %q, want it without a secret", text, clean)
		}
		if r, err := access.ParseRate(text); err == nil && r.Limited() && r.String() != text &&
			!strings.HasPrefix(text, "0") && !strings.HasPrefix(text, "+") {
			t.Errorf("%q: got the rate %q, want an error or the same text", text, r)
		}
	})
}

// It would be stored, listed and audited.
func TestNamesHoldNoSecret(t *testing.T) {
	now := time.Unix(1e9, 0)
	add := map[string]func(name string) error{
		"developer": func(name string) error {
			_, _, err := access.New(access.Credential{Kind: access.TokenKind, Developer: name, Operations: access.AllOperations}, now)
			return err
		},
		"source": func(name string) error {
			_, _, err := access.New(access.Credential{Kind: access.SourceKind, Name: name, Vehicles: access.AllVehicles()}, now)
			return err
		},
		"operator": func(name string) error {
			_, _, err := access.New(access.Credential{Kind: access.OperatorKind, Name: name}, now)
			return err
		},
	}
	for what, add := range add {
		for _, kind := range kinds {
			secret, _ := access.NewSecret(kind)
			for _, name := range []string{secret, "x" + secret, secret[:len(secret)-9], "css_" + secret} {
				if err := add(name); err == nil || !strings.Contains(err.Error(), "a name must not hold one") {
					t.Errorf("%s, a name with a %s secret: got %v, want that it must not hold one", what, kind, err)
				}
			}
		}
		for _, name := range []string{"css_gateway", "cst_", "fleet_cst_team1", "Ada"} {
			if err := add(name); err != nil {
				t.Errorf("%s %q: got %v, want no error", what, name, err)
			}
		}
	}
}

func TestOneLine_JoinsAndCleans(t *testing.T) {
	err := errors.Join(errors.New("the stream was  replaced\r\n"),
		errors.New("the tables cannot be rebuilt: no right\x1b[1m"))
	if got, want := access.OneLine(err),
		"the stream was replaced; the tables cannot be rebuilt: no right"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
