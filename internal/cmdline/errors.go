package cmdline

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/access"
)

var examples = map[string]string{
	"duration":            "a duration such as 30s, 5m or 1h30m",
	"duration value":      "a duration such as 30s, 5m or 1h30m",
	"a float":             "a number such as 0.5",
	"float value":         "a number such as 0.5",
	"an int":              "a whole number such as 200",
	"int value":           "a whole number such as 200",
	"string value":        "a value",
	"a valid 64 bit int":  "a whole number such as 200",
	"a valid 64 bit uint": "a whole number such as 200",
}

// Unquoted returns a parser's error without the wrong value, which may be a secret in the wrong
// place.
func Unquoted(err error) string {
	complaint, variable, fromEnv := strings.Cut(access.OneLine(err), " (from envar ")
	complaint, _, _ = strings.Cut(complaint, " but got ")
	complaint = strings.Replace(complaint, `must be one of "",`, "must be one of ", 1) // "" means that it is left out
	for expected, example := range examples {
		if before, ok := strings.CutSuffix(complaint, "expected "+expected); ok {
			complaint = before + "expected " + example
		}
	}
	if fromEnv {
		variable, _, _ = strings.Cut(variable, "=")
		complaint += " (" + variable + ")"
	}
	return complaint
}

// ExampleOf returns "" unless an argument or value is missing, or a flag is unknown.
func ExampleOf(command *kong.Node, err error) string {
	flag, _, _ := strings.Cut(err.Error(), ": expected string value")
	_, examples, ok := strings.Cut(command.Detail, "Example:\n")
	if ok && (strings.HasPrefix(flag, `expected "<`) || strings.HasPrefix(flag, "unknown flag")) {
		line, _, _ := strings.Cut(examples, "\n")
		return " (example: " + strings.TrimSpace(line) + ")"
	}
	if f := takesValue(command, flag); f != nil {
		return fmt.Sprintf(", as in %s=%s", flag, f.FormatPlaceHolder())
	}
	return ""
}
