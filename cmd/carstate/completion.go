package main

import (
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"carstate/internal/cmdline"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// completions maps the name of a shell to its completion script. The script passes the words typed
// so far to `carstate __complete`, which prints the possible next words. If there are none, the
// shell completes file names.
var completions = map[string]string{
	"bash": `_carstate() {
	local IFS=$'\n'
	COMPREPLY=($(carstate __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _carstate carstate
`,
	"zsh": `#compdef carstate
_carstate() {
	local -a next
	next=(${(f)"$(carstate __complete "${(@)words[2,CURRENT]}" 2>/dev/null | cut -f 1)"})
	if (( $#next )); then compadd -- $next; else _files; fi
}
if [ "$funcstack[1]" = _carstate ]; then _carstate; else compdef _carstate carstate; fi
`,
	"fish": `function __carstate_next
	set -l words (commandline -opc) (commandline -ct)
	carstate __complete $words[2..] 2>/dev/null
end
complete -c carstate -n '__carstate_next | string length -q' -f -a '(__carstate_next)'
`,
}

// Run prints the completion script of a shell.
func (c *completionCommand) Run(w streams) error {
	_, err := io.WriteString(w.out, completions[c.Shell])
	return err
}

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words so far; the last one is being typed."`
}

// Run prints each possible completion of the last word, with its help, on a line of its own.
func (c *completeCommand) Run(w streams, given *kong.Context) error {
	for _, next := range cmdline.Candidates(given.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(w.out, next); err != nil {
			return err
		}
	}
	return nil
}
