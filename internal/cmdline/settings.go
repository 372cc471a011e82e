package cmdline

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/access"
)

// UnknownVariables returns the environment variables with the prefix that set no flag of any
// command, such as mistyped ones.
func UnknownVariables(root *kong.Node, prefix string) (unknown []string) {
	known := make(map[string]bool)
	_ = kong.Visit(root, func(v kong.Visitable, next kong.Next) error { // Visit adds no errors
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

type Setting struct{ Name, Value, From string }

// Settings returns the selected command's flags, without secrets in the values.
func Settings(given *kong.Context, except ...string) (all []Setting) {
	for _, f := range given.Selected().Flags {
		if !slices.Contains(except, f.Name) {
			all = append(all, Setting{f.Name, shownValue(f), source(given, f)})
		}
	}
	return all
}

func source(given *kong.Context, f *kong.Flag) string {
	for _, p := range given.Path {
		if p.Flag == f && !p.Resolved {
			return "command line"
		}
	}
	for _, name := range f.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name
		}
	}
	return "default"
}

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
