package term_test

import (
	"bytes"
	"strings"
	"testing"

	"example.org/carstate/internal/term"
)

func TestConfirmTakesOnlyYes(t *testing.T) {
	for typed, want := range map[string]bool{"y\n": true, " YES \n": true, "\n": false, "": false, "n\n": false,
		"yesterday\n": false} {
		var prompt bytes.Buffer
		if err := term.Confirm(t.Context(), strings.NewReader(typed), &prompt, "Forget it?"); (err == nil) != want ||
			prompt.String() != "Forget it? [y/N] " {
			t.Errorf("%q: got %v, asked %q; want yes: %t", typed, err, &prompt, want)
		}
	}
}
