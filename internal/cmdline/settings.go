package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/access"
)

// Settings are the flags of a command that a configuration file can set. The file has one "name =
// value" on each line. The names are those of the flags. If the command line or an environment
// variable also sets a flag, the value in the file is ignored.
type Settings struct {
	file   string             // the name of the file; "" if there is none
	lines  map[string]setting // by the names of the flags
	except []string           // flags that cannot be set in the file
}

// setting is the value on one line of the configuration file, and the number of that line.
type setting struct {
	value string
	line  int
}

// maxConfigFile is the maximum size of the configuration file in bytes. It is far more than all
// settings need.
const maxConfigFile = 1 << 20

// LoadSettings returns the settings of the selected command. It reads the configuration file that
// the flag fileFlag names, and checks each setting in the file against the flags of the command,
// which must have fileFlag. It then registers the settings with the parser. If the flag names no
// file, LoadSettings only returns settings without values from a file. If the file cannot be read
// or a line is wrong, it returns an error. LoadSettings must be called by the command's method
// BeforeResolve, because the parser looks for values after that. The flags in except, which select
// an action, are not settings.
func LoadSettings(given *kong.Context, fileFlag string, except []string) (Settings, error) {
	s := Settings{except: except}
	command := given.Selected()
	i := slices.IndexFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == fileFlag })
	if s.file, _ = given.FlagValue(command.Flags[i]).(string); s.file == "" {
		return s, nil
	}
	info, err := os.Stat(s.file)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxConfigFile) {
		err = errors.New("it is not a regular file, or larger than 1 MiB")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(s.file)
	}
	if err != nil {
		return s, fmt.Errorf("the file of --%s cannot be read: %w", fileFlag, err)
	}
	s.lines, err = parseConfigFile(text, func(name, value string) error { return s.check(command, name, value) })
	if err != nil {
		return s, fmt.Errorf("%s, %w", s.file, err)
	}
	given.AddResolver(kong.ResolverFunc(s.resolve))
	return s, nil
}

// parseConfigFile returns the settings in the text of a configuration file, by their names. It
// skips empty lines and lines that begin with #. The function check returns an error for a setting
// that is wrong. An error gives the number of the first wrong line but never quotes the line, because
// the line may contain a secret.
func parseConfigFile(text []byte, check func(name, value string) error) (map[string]setting, error) {
	settings := make(map[string]setting)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r == utf8.RuneError || r != '\t' && unicode.IsControl(r) }) {
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
		if err := check(name, value); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		settings[name] = setting{value, n}
	}
	return settings, nil
}

// check returns an error if the name is not that of a setting, or if its flag does not accept the
// value.
func (s Settings) check(command *kong.Node, name, value string) error {
	i := slices.IndexFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == name })
	switch {
	case slices.Contains(s.except, name):
		return fmt.Errorf("%s is for the command line only", name)
	case i < 0:
		return fmt.Errorf("there is no such setting%s: the names are those of the flags that %s --help lists, "+
			"without the dashes", meant(command, name), command.FullPath())
	}
	if takes := refusesValue(command.Flags[i], value); takes != "" {
		return fmt.Errorf("%s takes %s", name, takes)
	}
	return nil
}

// meant returns a hint, such as " (did you mean log-level?)", if name is the name of a setting with
// the dashes of a flag or in the form of an environment variable. Otherwise it returns "".
func meant(command *kong.Node, name string) string {
	name = strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "carstate-")
	name = strings.TrimLeft(name, "-")
	if !slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == name }) {
		return ""
	}
	return " (did you mean " + name + "?)"
}

// UnknownVariables returns the names of the environment variables that have the prefix of this
// program but set no flag of any command, such as one whose name has a typing error. The names are
// sorted.
func UnknownVariables(root *kong.Node, prefix string) (unknown []string) {
	known := make(map[string]bool)
	_ = kong.Visit(root, func(v kong.Visitable, next kong.Next) error { // next returns no other errors
		if f, ok := v.(*kong.Flag); ok {
			for _, name := range f.Envs {
				known[name] = true
			}
		}
		return next(nil)
	})
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, prefix) && !known[name] {
			unknown = append(unknown, access.Redact(name))
		}
	}
	slices.Sort(unknown)
	return unknown
}

// refusesValue returns "" if the flag f accepts the value. Otherwise it describes the values that
// the flag accepts, such as "a duration such as 5m".
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

// resolve returns the value that the configuration file has for a flag. It returns nil if the file
// has no value for the flag, or if an environment variable sets the flag.
func (s Settings) resolve(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	x, ok := s.lines[f.Name]
	if _, set := fromEnvironment(f); set || !ok {
		return nil, nil
	}
	return x.value, nil
}

// flags returns those flags of the command that are settings: all except those in s.except.
func (s Settings) flags(given *kong.Context) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(given.Selected().Flags),
		func(f *kong.Flag) bool { return slices.Contains(s.except, f.Name) })
}

// Values returns the value of each setting as text, by the name of its flag.
func (s Settings) Values(given *kong.Context) map[string]string {
	all := make(map[string]string)
	for _, f := range s.flags(given) {
		all[f.Name] = fmt.Sprint(f.Target.Interface())
	}
	return all
}

// WriteTable writes a table with a line for each setting: its name, its value, and where the value
// comes from. Secrets in values are hidden.
func (s Settings) WriteTable(w io.Writer, given *kong.Context) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SETTING\tVALUE\tFROM")
	for _, f := range s.flags(given) {
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, shownValue(f), s.source(given, f))
	}
	return t.Flush()
}

// source returns where a flag's value comes from, as text: the command line, an environment
// variable, a line of the configuration file, or the default.
func (s Settings) source(given *kong.Context, f *kong.Flag) string {
	for _, p := range given.Path {
		if p.Flag == f && !p.Resolved {
			return "command line"
		}
	}
	if name, ok := fromEnvironment(f); ok {
		return name
	}
	if x, ok := s.lines[f.Name]; ok {
		return fmt.Sprintf("%s, line %d", s.file, x.line)
	}
	return "default"
}

// fromEnvironment returns the name of the environment variable that sets a flag. If no variable
// sets the flag, the results are "" and false.
func fromEnvironment(f *kong.Flag) (name string, ok bool) {
	for _, name := range f.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name, true
		}
	}
	return "", false
}

// shownValue returns a flag's value for printing, with secrets hidden.
func shownValue(f *kong.Flag) string {
	text := fmt.Sprint(f.Target.Interface())
	if list, ok := f.Target.Interface().([]string); ok {
		text = strings.Join(list, ",")
	}
	switch {
	case text == "":
		return "-"
	case strings.Contains(text, "@"):
		return access.RedactLogins(text)
	}
	return access.Redact(text)
}
