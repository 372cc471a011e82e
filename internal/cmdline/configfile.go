package cmdline

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

// ConfigFile maps the name of each setting in the configuration file (--config) to its value. The
// file has one "name = value" on each line. The names are those of the flags. If the command line
// or an environment variable also sets a flag, the value in the file is ignored.
type ConfigFile map[string]setting

// setting is the value on one line of the configuration file, and the number of that line.
type setting struct {
	value string
	line  int
}

// maxConfigFile is the maximum size of the configuration file in bytes. It is far more than all
// settings need.
const maxConfigFile = 1 << 20

// LoadConfigFile reads a configuration file and checks each setting in it against the flags of a
// command. The flags named in notSettings cannot be set in the file.
func LoadConfigFile(name string, command *kong.Node, notSettings []string) (ConfigFile, error) {
	info, err := os.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxConfigFile) {
		err = errors.New("it is not a regular file, or larger than 1 MiB")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("the file of --config cannot be read: %w", err)
	}
	settings, err := parseConfigFile(text)
	if err == nil {
		err = settings.check(command, notSettings)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %w", name, err)
	}
	return settings, nil
}

// parseConfigFile parses the text of a configuration file. Its errors give the number of a wrong
// line but never quote the line, because it may contain a secret.
func parseConfigFile(text []byte) (ConfigFile, error) {
	settings := make(ConfigFile)
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

// check returns an error for the first line of the configuration file whose name is not a flag or
// whose value the flag does not accept.
func (c ConfigFile) check(command *kong.Node, notSettings []string) error {
	first := 0
	var complaint string
	complain := func(line int, format string, args ...any) {
		if first == 0 || line < first {
			first, complaint = line, fmt.Sprintf(format, args...)
		}
	}
	for name, s := range c {
		i := slices.IndexFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == name })
		switch {
		case slices.Contains(notSettings, name):
			complain(s.line, "%s is for the command line only", name)
		case i < 0:
			complain(s.line, "there is no such setting: the names are those of the flags that %s --help lists, "+
				"without the dashes", command.FullPath())
		default:
			if takes := refusesValue(command.Flags[i], s.value); takes != "" {
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
func (c ConfigFile) Validate(*kong.Application) error { return nil }

// Resolve implements [kong.Resolver]: it returns the value that the configuration file has for a
// flag. It returns nil if the file has no value for the flag, or if an environment variable sets
// the flag.
func (c ConfigFile) Resolve(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	s, ok := c[f.Name]
	if _, set := fromEnvironment(f); set || !ok {
		return nil, nil
	}
	return s.value, nil
}

// Source returns where a flag's value comes from, as text: the command line, an environment variable,
// a line of the configuration file, or the default. The parameter file is the name of the
// configuration file.
func (c ConfigFile) Source(given *kong.Context, f *kong.Flag, file string) string {
	for _, p := range given.Path {
		if p.Flag == f && !p.Resolved {
			return "command line"
		}
	}
	if name, ok := fromEnvironment(f); ok {
		return name
	}
	if s, ok := c[f.Name]; ok {
		return fmt.Sprintf("%s, line %d", file, s.line)
	}
	return "default"
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
