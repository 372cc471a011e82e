package cmdline

import (
	"embed"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

//go:embed completion
var completion embed.FS

// CompletionScript returns the script for bash, zsh or fish. It passes the words typed so far to
// `carstate __complete`, which prints the [Candidates]; if there are none, the shell completes file
// names.
func CompletionScript(shell string) string {
	script, _ := completion.ReadFile("completion/carstate." + shell)
	return string(script)
}

// Candidates returns completions of the last of the words after the name of the command n, each
// with a tab and the first line of its help.
func Candidates(n *kong.Node, words []string) (all []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	add := func(text, help string) {
		if strings.HasPrefix(text, last) {
			help, _, _ = strings.Cut(help, "\n")
			all = append(all, text+"\t"+help)
		}
	}
	addValues := func(v *kong.Value) {
		for _, value := range v.EnumSlice() {
			if value != "" {
				add(value, "")
			}
		}
	}
	var valueOf *kong.Flag // whose value comes next
	for _, word := range words[:len(words)-1] {
		switch {
		case valueOf != nil:
			valueOf = nil
		case strings.HasPrefix(word, "--"):
			valueOf = takesValue(n, word)
		default:
			if child := subcommand(n, word); child != nil {
				n = child
			}
		}
	}
	switch {
	case valueOf != nil:
		addValues(valueOf.Value)
	case strings.HasPrefix(last, "-"):
		for _, f := range slices.Concat(n.AllFlags(true)...) {
			add("--"+f.Name, f.Help)
		}
	default:
		for _, child := range n.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
		for _, p := range n.Positional {
			addValues(p)
		}
	}
	return all
}

func takesValue(n *kong.Node, word string) *kong.Flag {
	for _, f := range slices.Concat(n.AllFlags(true)...) {
		if word == "--"+f.Name && !f.IsBool() {
			return f
		}
	}
	return nil
}
