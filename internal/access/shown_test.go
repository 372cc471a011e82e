package access

import (
	"errors"
	"strings"
	"testing"
)

// TestOneLine_JoinsAndCleans checks that joined errors result in one line without control
// characters.
func TestOneLine_JoinsAndCleans(t *testing.T) {
	err := errors.Join(errors.New("the stream was  replaced\r\n"),
		errors.New("the tables cannot be rebuilt: no right\x1b[1m"))
	if got, want := OneLine(err),
		"the stream was replaced; the tables cannot be rebuilt: no right"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
