package access

import (
	"strings"
	"testing"
)

var kinds = []Kind{TokenKind, SandboxKind, SourceKind, OperatorKind, AdminKind, BackupKind}

// FuzzSecrets checks that each text that Check accepts has the length and the prefix of a secret,
// and that HoldsSecret finds no secret in what Redact returns. It also checks that the String of a
// parsed rate is the text that was parsed, unless the number in the text begins with 0 or +.
func FuzzSecrets(f *testing.F) {
	for _, k := range kinds {
		f.Add(string(k) + strings.Repeat("0", 36))
	}
	f.Add("cst_cst_" + strings.Repeat("A", 40) + "_css_")
	f.Add("Bearer cstest_")
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range kinds {
			if Check(k, []byte(text)) == nil && (len(text) != k.Length() || !strings.HasPrefix(text, string(k)) ||
				!HoldsSecret(text)) {
				t.Errorf("%q passes for a secret", text)
			}
		}
		if clean := Redact(text); HoldsSecret(clean) {
			t.Errorf("%q still holds a secret after %q", clean, text)
		}
		if r, err := ParseRate(text); err == nil && r.Limited() && r.String() != text &&
			!strings.HasPrefix(text, "0") && !strings.HasPrefix(text, "+") {
			t.Errorf("%q is read as %q", text, r)
		}
	})
}
