package cmdline

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/alecthomas/kong"
)

type testCommands struct {
	Serve testSettings `cmd:""`
}

type testSettings struct {
	Config string
	MaxAge string
}

func (c *testSettings) BeforeResolve(given *kong.Context) error {
	_, err := LoadSettings(given, "config", nil)
	return err
}

// testParser returns a parser with one command, which has the setting max-age.
func testParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&testCommands{}, kong.Name("carstate"), kong.DefaultEnvars("CARSTATE"),
		kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// TestUnknownVariables checks that a variable with a typing error in its name is found, and that
// neither the variables of flags nor those of other programs are.
func TestUnknownVariables(t *testing.T) {
	for _, name := range []string{"CARSTATE_MAX_AGE", "CARSTATE_MAX_AEG", "OTHER_MAX_AEG"} {
		t.Setenv(name, "1m")
	}
	got := UnknownVariables(testParser(t).Model.Node, "CARSTATE_")
	if want := []string{"CARSTATE_MAX_AEG"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUnknownSetting checks that a name in the configuration file that is written as a flag or as
// an environment variable leads to a hint, and that another name is not quoted.
func TestUnknownSetting(t *testing.T) {
	for name, want := range map[string]string{
		"max_age": "did you mean max-age?", "--max-age": "did you mean max-age?", "CARSTATE_MAX_AGE": "did you mean max-age?",
		"max-aeg": "there is no such setting:",
	} {
		file := filepath.Join(t.TempDir(), "settings")
		if err := os.WriteFile(file, []byte(name+" = 5m\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := testParser(t).Parse([]string{"serve", "--config", file})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "aeg") {
			t.Errorf("%s: got error %v, want one with %q", name, err, want)
		}
	}
}

// FuzzConfigFile checks that any file is either parsed or rejected with an error that begins with
// the number of the wrong line. So that it cannot repeat much of the file, the error has at most
// 100 bytes and no control characters. A name and its value must come from the line whose number
// the setting has.
func FuzzConfigFile(f *testing.F) {
	f.Add("max-age = 5m\n# why\n\nroles=query,ingest")
	f.Add("a = b\r\na = c")
	f.Add("nats = nats://me:secret@a:4222")
	f.Add("= x\n\x00\x1b[31m = 1")
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := parseConfigFile([]byte(text), func(name, value string) error { return nil })
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") || strings.ContainsFunc(err.Error(), unicode.IsControl) ||
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
