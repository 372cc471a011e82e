package cmdline

import (
	"strings"
	"testing"
)

// FuzzConfigFile checks that any file is either parsed or rejected with an error of one line. The
// error must give the number of the wrong line and quote nothing of it.
func FuzzConfigFile(f *testing.F) {
	f.Add("max-age = 5m\n# why\n\nroles=query,ingest")
	f.Add("a = b\r\na = c")
	f.Add("nats = nats://me:secret@a:4222")
	f.Add("= x\n\x00\x1b[31m = 1")
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := parseConfigFile([]byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") || strings.ContainsFunc(err.Error(), isControl) ||
				len(err.Error()) > 100 {
				t.Errorf("refused with %q", err)
			}
			return
		}
		lines := strings.Split(text, "\n")
		for name, s := range settings {
			line := lines[s.line-1]
			if name == "" || !strings.Contains(line, name) || !strings.Contains(line, s.value) {
				t.Errorf("line %d is %q, not %q = %q", s.line, line, name, s.value)
			}
		}
	})
}
