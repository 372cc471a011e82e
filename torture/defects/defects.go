// Package defects holds patches that break a build on purpose, as proof that the torture catches
// them.
//
// A patch begins with lines about the defect:
//
// - Breaks: the promise.
// - Row: the rows that must catch it, each with the maximum size, if there is one.
// - Does: the error.
// - By: a pattern of the findings that prove it, where * matches variable parts.
//
// The rest is a unified diff. Its line numbers are ignored: the lines of each hunk must occur
// exactly once in the file. If they moved, change the file's name in the patch. If they changed,
// write the defect into the committed product by hand, put the output of `git diff -U1` below the
// lines above the diff, and `git restore` the product.
package defects

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed *.patch
var patches embed.FS

type Control struct {
	Defect string
	// By describes the effect of this defect and of no other. One match is enough.
	By    []string
	Count int // maximum size of the attempt, if not 0
}

func Controls(row string, defects ...string) (all []Control) {
	for _, defect := range defects {
		text, err := patches.ReadFile(defect + ".patch")
		if err != nil {
			panic(err)
		}
		head, _, _ := strings.Cut(string(text), "\n--- ")
		c := Control{Defect: defect}
		for line := range strings.SplitSeq(head, "\n") {
			switch key, value, _ := strings.Cut(line, ": "); key {
			case "Row":
				for of := range strings.SplitSeq(value, ", ") {
					if n, ok := strings.CutPrefix(of, row+" "); ok {
						c.Count, _ = strconv.Atoi(n)
					}
				}
			case "By":
				c.By = append(c.By, value)
			}
		}
		all = append(all, c)
	}
	return all
}

func (c *Control) CaughtBy(finding string) bool {
	return slices.ContainsFunc(c.By, func(wanted string) bool {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(wanted), `\*`, `.*`)
		return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(finding)
	})
}

// Overlay writes patched copies into dir, and returns the file for `go build -overlay`. Paths are
// absolute.
func Overlay(root, defect, dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "torture", "defects", defect+".patch"))
	if err != nil {
		return "", err
	}
	o := overlay{make(map[string]string)}
	for _, h := range hunks(string(text)) {
		original := filepath.Join(root, h.file)
		patched := filepath.Join(dir, strings.ReplaceAll(h.file, "/", "_"))
		from := original
		if o.Replace[original] != "" {
			from = patched // with the earlier hunks
		}
		o.Replace[original] = patched
		content, err := os.ReadFile(from)
		if err == nil && (strings.Count(string(content), h.before) != 1 || h.before == h.after) {
			err = errors.New("a hunk changes nothing, or its lines do not occur exactly once")
		}
		if err == nil {
			err = os.WriteFile(patched, []byte(strings.Replace(string(content), h.before, h.after, 1)), 0o600)
		}
		if err != nil {
			return "", fmt.Errorf("torture/defects/%s.patch does not fit %s: %w: refresh it as the package comment of "+
				"torture/defects says", defect, h.file, err)
		}
	}
	text, err = json.Marshal(o)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

type overlay struct{ Replace map[string]string }

type hunk struct{ file, before, after string }

func hunks(patch string) (all []hunk) {
	var file string
	inHunk := false
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "--- a/"), strings.HasPrefix(line, "diff "):
			inHunk = false
		case !inHunk && strings.HasPrefix(line, "+++ b/"):
			file = strings.TrimSpace(line[len("+++ b/"):])
		case strings.HasPrefix(line, "@@ "):
			all = append(all, hunk{file: file})
			inHunk = true
		case inHunk:
			h := &all[len(all)-1]
			if line[0] != '+' {
				h.before += line[1:]
			}
			if line[0] != '-' {
				h.after += line[1:]
			}
		}
	}
	return all
}
