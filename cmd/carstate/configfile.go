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

// configFile maps the name of each setting in the configuration file (--config) to its value. The
// file has one "name = value" on each line. The names are those of the flags. If the command line
// or an environment variable also sets a flag, the value in the file is ignored.
type configFile map[string]setting

// setting is the value on one line of the configuration file, and the number of that line.
type setting struct {
	value string
	line  int
}

// maxConfigFile is the maximum size of the configuration file in bytes. It is far more than all
// settings need.
const maxConfigFile = 1 << 20

// loadConfigFile reads a configuration file and checks each setting in it against the flags of a
// command.
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

// parseConfigFile parses the text of a configuration file. Its errors give the number of a wrong
// line but never quote the line, because it may contain a secret.
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

// notSettings are the names of flags that cannot be set in the configuration file, because they
// select an action.
var notSettings = []string{"help", "config", "check"}

// check returns an error for the first line of the configuration file whose name is not a flag or
// whose value the flag does not accept.
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

// refusesValue returns "" if a flag accepts the value, and otherwise a description of the values
// that the flag accepts, such as "a duration such as 5m".
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

// Validate implements [kong.Resolver]. It does nothing, because the file was checked when it was
// read.
func (c configFile) Validate(*kong.Application) error { return nil }

// Resolve implements [kong.Resolver]: it returns the value that the configuration file has for a
// flag. It returns nil if the file has no value for the flag, or if an environment variable sets
// the flag.
func (c configFile) Resolve(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	s, ok := c[f.Name]
	if _, set := fromEnvironment(f); set || !ok {
		return nil, nil
	}
	return s.value, nil
}

// fromEnvironment returns the name of the environment variable that sets a flag. The result ok is
// false if none does.
func fromEnvironment(f *kong.Flag) (name string, ok bool) {
	for _, name := range f.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name, true
		}
	}
	return "", false
}
