//go:build ignore

// Command sametokens checks that only comments of Go files were changed: the tokens of each file
// that differs from a commit are the same in the work tree.
//
//	go run scripts/sametokens.go COMMIT
package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run scripts/sametokens.go COMMIT")
		os.Exit(2)
	}
	names, err := exec.Command("git", "diff", "--name-only", "--no-renames", "--diff-filter=M", "--relative", os.Args[1], "--", "*.go").Output()
	check(err)
	changed := 0
	for name := range strings.Lines(string(names)) {
		name = strings.TrimSpace(name)
		before, err := exec.Command("git", "show", os.Args[1]+":./"+name).Output()
		check(err)
		after, err := os.ReadFile(name)
		check(err)
		if a, b := tokens(before), tokens(after); !bytes.Equal(a, b) {
			fmt.Println(name)
			changed++
		}
	}
	if changed > 0 {
		fmt.Fprintf(os.Stderr, "%d files differ in more than comments\n", changed)
		os.Exit(1)
	}
}

// tokens lists the tokens of a file, one a line. It leaves out comments, except those that the Go
// tools read, such as //go:embed.
func tokens(src []byte) []byte {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(src)), src, nil, scanner.ScanComments)
	var b bytes.Buffer
	for {
		_, kind, text := s.Scan()
		if kind == token.EOF {
			return b.Bytes()
		}
		if kind == token.SEMICOLON {
			text = "" // it may be a newline
		}
		directive := strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") ||
			strings.HasPrefix(text, "//lint:") || strings.HasPrefix(text, "// Output:")
		if kind != token.COMMENT || directive {
			fmt.Fprintln(&b, kind, text)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "sametokens:", err)
		os.Exit(1)
	}
}
