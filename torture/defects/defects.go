// Package defects holds patches that break a build, to prove that the torture catches them.
//
// A patch begins with lines about the defect:
//
// - Breaks: the promise.
// - Row: the rows that must catch it, each with the maximum size, if there is one.
// - Does: the error.
// - By: a pattern of the findings that prove it, where * matches variable parts.
//
// The rest is a unified diff, which git applies at the nearest place where its lines occur. If they
// moved to another file, change its name. If they changed, write the defect into the committed
// product by hand, put the output of `git diff -U1` below these lines, and `git restore` the
// product.
package defects

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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

func Controls(row string) (all []Control) {
	names, _ := fs.Glob(patches, "*.patch")
	for _, name := range names {
		text, err := patches.ReadFile(name)
		if err != nil {
			panic(err)
		}
		head, _, _ := strings.Cut(string(text), "\n--- ")
		c, ofRow := Control{Defect: strings.TrimSuffix(name, ".patch")}, false
		for line := range strings.SplitSeq(head, "\n") {
			switch key, value, _ := strings.Cut(line, ": "); key {
			case "Row":
				for of := range strings.SplitSeq(value, ", ") {
					if name, n, _ := strings.Cut(of, " "); name == row {
						c.Count, _ = strconv.Atoi(n)
						ofRow = true
					}
				}
			case "By":
				c.By = append(c.By, value)
			}
		}
		if ofRow {
			all = append(all, c)
		}
	}
	return all
}

func (c *Control) CaughtBy(finding string) bool {
	return slices.ContainsFunc(c.By, func(wanted string) bool {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(wanted), `\*`, `.*`)
		return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(finding)
	})
}

var changed = regexp.MustCompile(`(?m)^\+\+\+ b/(.+)$`)

// Overlay writes patched copies into dir, and returns the file for `go build -overlay`. Paths are
// absolute.
func Overlay(root, defect, dir string) (string, error) {
	patch := filepath.Join(root, "torture", "defects", defect+".patch")
	text, err := os.ReadFile(patch)
	if err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	o.Replace = make(map[string]string)
	for _, m := range changed.FindAllStringSubmatch(string(text), -1) {
		original, patched := filepath.Join(root, m[1]), filepath.Join(dir, m[1])
		o.Replace[original] = patched
		content, err := os.ReadFile(original)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(patched), 0o700), os.WriteFile(patched, content, 0o600)); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("git", "apply", patch)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("torture/defects/%s.patch does not fit: %w: refresh it as the package comment of "+
			"torture/defects says: %s", defect, err, out)
	}
	text, err = json.Marshal(o)
	name := filepath.Join(dir, "overlay.json")
	return name, errors.Join(err, os.WriteFile(name, text, 0o600))
}
