package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// configFile holds the settings in the configuration file (--config), which has one "name = value"
// on each line. The names are those of the flags. A flag on the command line or its environment
// variable takes precedence.
type configFile map[string]setting

// setting is one line of the file.
type setting struct {
	value string
	line  int
}

// maxConfigFile is the maximum size of the file in bytes. It is far more than all settings need.
const maxConfigFile = 1 << 20

// loadConfigFile reads a file and checks each line against the flags of a command.
func loadConfigFile(name string, flags []*kong.Flag) (configFile, error) {
	info, err := os.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxConfigFile) {
		err = errors.New("it is not a regular file, or larger than 1 MiB")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, usageError("the file of --config cannot be read: %v", err)
	}
	settings, err := parseConfigFile(text)
	if err == nil {
		err = settings.check(flags)
	}
	if err != nil {
		return nil, usageError("%s, %v", name, err)
	}
	return settings, nil
}

// parseConfigFile parses the lines. Its errors give the number of the line but never quote the
// line, because it may contain a secret.
func parseConfigFile(text []byte) (configFile, error) {
	settings := make(configFile)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxConfigFile)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !utf8.ValidString(line) || strings.ContainsFunc(line, isControl) {
			return nil, fmt.Errorf("line %d: not text", n)
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			return nil, fmt.Errorf("line %d: expected name = value", n)
		}
		if before, ok := settings[name]; ok {
			return nil, fmt.Errorf("line %d: already set in line %d", n, before.line)
		}
		settings[name] = setting{value, n}
	}
	return settings, lines.Err()
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// notSettings are flags that select an action, so the file cannot set them.
var notSettings = []string{"help", "config", "check"}

// check returns an error for the first line whose name is not a flag or whose value the flag does
// not accept.
func (c configFile) check(flags []*kong.Flag) error {
	first := 0
	var complaint string
	complain := func(line int, format string, args ...any) {
		if first == 0 || line < first {
			first, complaint = line, fmt.Sprintf(format, args...)
		}
	}
	for name, s := range c {
		i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == name })
		switch {
		case slices.Contains(notSettings, name):
			complain(s.line, "%s is for the command line only", name)
		case i < 0:
			complain(s.line, "there is no such setting: the names are those of the flags that carstate serve --help "+
				"lists, without the dashes")
		default:
			if takes := refusesValue(flags[i], s.value); takes != "" {
				complain(s.line, "%s takes %s", name, takes)
			}
		}
	}
	if first == 0 {
		return nil
	}
	return fmt.Errorf("line %d: %s", first, complaint)
}

// refusesValue returns "" if a flag accepts the value. Otherwise it returns a description of the
// values that the flag accepts.
func refusesValue(f *kong.Flag, value string) string {
	target := reflect.New(f.Target.Type()).Elem()
	err := f.Parse(kong.Scan().PushTyped(value, kong.FlagValueToken), target)
	if f.Enum != "" {
		allowed := f.EnumSlice()
		given := []string{value}
		if target.Kind() == reflect.Slice {
			given = strings.Split(value, ",")
		}
		if slices.ContainsFunc(given, func(g string) bool { return !slices.Contains(allowed, g) }) {
			return "only " + strings.Join(allowed, ", ")
		}
	}
	switch {
	case err == nil:
		return ""
	case target.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 5m"
	case target.Kind() == reflect.Bool:
		return "true or false"
	}
	return "a number"
}

// Validate implements [kong.Resolver]. The file was already checked when it was read.
func (c configFile) Validate(*kong.Application) error { return nil }

// Resolve returns the value in the file for a flag that is set neither on the command line nor in
// the environment.
func (c configFile) Resolve(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	s, ok := c[f.Name]
	if _, set := fromEnvironment(f); set || !ok {
		return nil, nil
	}
	return s.value, nil
}

// fromEnvironment returns the environment variable that sets a flag.
func fromEnvironment(f *kong.Flag) (name string, ok bool) {
	for _, name := range f.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name, true
		}
	}
	return "", false
}
