package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/cmdline"
)

func TestCompletionNamesWhatMayStandNext(t *testing.T) {
	for words, want := range map[string]string{
		"tok":                     "token",
		"token re":                "revoke",
		"help token re":           "revoke",
		"token --":                "--help",
		"token revoke --y":        "--yes",
		"serve --log-level d":     "debug",
		"serve --data-dir x --ac": "--access-log",
		"serve --data-dir ":       "",
		"completion f":            "fish",
		"__comp":                  "",
		"nonsense x":              "",
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"__complete"}, strings.Split(words, " ")...), &stdout, &stderr)
		got, _, _ := strings.Cut(stdout.String(), "\t")
		if code != exitOK || got != want || strings.Count(stdout.String(), "\n") > 1 {
			t.Errorf("%s: got exit code %d, %q, want %d, %q", words, code, &stdout, exitOK, want)
		}
	}
}

func TestCompletionInEachShell(t *testing.T) {
	startsPrograms(t)
	for shell, use := range map[string]string{
		"bash": `COMP_WORDS=(carstate token r); COMP_CWORD=2; _carstate; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh":  `compadd() { shift; print -l -- "$@" }; words=(carstate token r); CURRENT=3; _carstate`,
		"fish": `complete -C 'carstate token r' | cut -f 1`,
	} {
		script := cmdline.CompletionScript(shell) + use
		if shell == "zsh" {
			script = "autoload -Uz compinit && compinit -u -D\n" + script
		}
		c := exec.CommandContext(t.Context(), shell, "-c", script)
		c.Env = append(os.Environ(), "PATH="+filepath.Dir(plain)+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
		out, err := c.CombinedOutput()
		if err != nil || string(out) != "rotate\nrevoke\n" && string(out) != "revoke\nrotate\n" {
			t.Errorf("%s: got %v, %q, want rotate and revoke", shell, err, out)
		}
	}
}
