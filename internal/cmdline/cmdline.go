// Package cmdline has the parts of a command line that are the same for all its commands. It works
// on the parser's model of the commands, and must not know any single command.
package cmdline

import (
	"strings"

	"github.com/alecthomas/kong"
)

// Texts adds long help texts. The section of text (see [Sections]) with a command's name becomes
// its long help, and section more_NAME replaces ${more_NAME} at the end of a flag's help. With
// kong.Vars, the parser would interpolate them again for every flag: 45 ms for each command.
func Texts(text string) kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		texts := Sections(text)
		return kong.Visit(k.Model.Node, func(v kong.Visitable, next kong.Next) error {
			switch v := v.(type) {
			case *kong.Node:
				v.Detail = texts[v.Path()]
			case *kong.Flag:
				if before, name, ok := strings.Cut(v.Help, "${more_"); ok {
					v.Help = before + strings.ReplaceAll(texts["more_"+strings.TrimSuffix(name, "}")], "\n", " ")
				}
			}
			return next(nil)
		})
	})
}

// Sections splits a text at lines "## NAME". Text before the first has the name "".
func Sections(text string) map[string]string {
	sections := make(map[string]string)
	for section := range strings.SplitSeq("\n"+text, "\n## ") {
		name, body, _ := strings.Cut(section, "\n")
		sections[name] = strings.TrimSpace(body)
	}
	return sections
}
