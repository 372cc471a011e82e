package cmdline

import (
	"cmp"
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

// Candidates returns completions of the last of the words after the name of the program, each with a
// tab and the first line of its help.
func Candidates(k *kong.Kong, words []string) (all []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	named, _ := kong.Trace(k, before) // ends at a wrong word
	n := cmp.Or(named.Selected(), k.Model.Node)
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
	if len(before) > 0 {
		valueOf = takesValue(n, before[len(before)-1])
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
