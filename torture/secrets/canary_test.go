package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

func TestCanaries_AllForms(t *testing.T) {
	secret, hash := access.NewSecret(access.TokenKind)
	other, _ := access.NewSecret(access.TokenKind)
	c := make(canaries)
	c.add("a token", secret, 4)
	c.addHash("a token", secret)
	percent := ""
	for _, b := range []byte(secret) {
		percent += fmt.Sprintf("%%%02x", b)
	}
	for name, text := range map[string]string{
		"whole":          "level=info msg=" + secret + " x",
		"the beginning":  secret[:16],
		"the middle":     "x" + secret[9:21] + "y",
		"the end":        secret[len(secret)-12:],
		"hexadecimal":    hex.EncodeToString([]byte(secret)),
		"capitals":       strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"base64":         base64.StdEncoding.EncodeToString([]byte("Bearer " + secret)),
		"base64, later":  base64.StdEncoding.EncodeToString([]byte("user:" + secret + "!")),
		"base64, of URL": base64.RawURLEncoding.EncodeToString([]byte("a=1&t=" + secret)),
		"percent":        percent,
		"query":          "?access_token=" + url.QueryEscape(secret),
		"hash":           "sum " + hex.EncodeToString(hash[:]),
		"raw hash":       string(hash[:]),
		"base64 of hash": base64.StdEncoding.EncodeToString(hash[:]),
	} {
		if len(c.find([]byte(text))) == 0 {
			t.Errorf("%s: got nothing, want the secret found", name)
		}
	}
	for _, text := range []string{"", other, secret[:11], base64.StdEncoding.EncodeToString([]byte(other)), "cst_… csa_…",
		strings.Repeat("cst_", 100)} {
		if found := c.find([]byte(text)); found != nil {
			t.Errorf("%.40q: got %v, want nothing", text, found)
		}
	}

	dir := t.TempDir()
	text := []byte("x" + secret[4:16])
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "log"), text, 0o600))
	leftOut := filepath.Join(dir, "admin.key")
	testkit.NoError(t, os.WriteFile(leftOut, []byte(secret), 0o600))
	var found []string
	n, err := c.searchTree(dir, leftOut, func(file string, f form) { found = append(found, file) })
	if err != nil || n != int64(len(text)) || len(found) != 1 || found[0] != "log" {
		t.Errorf("got %d bytes, %v, found in %v, want %d, in log", n, err, found, len(text))
	}
}
