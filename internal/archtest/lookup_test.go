package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhereToLook checks the table "Where to look". Each file in a row must declare one of the
// functions named in the same row, and one of the files must declare each function.
func TestWhereToLook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Where to look\n")
	table, _, _ = strings.Cut(table, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(line, "`") {
			continue
		}
		rows++
		names := quoted.FindAllStringSubmatch(cells[3], -1)
		found := make(map[string]bool)
		for _, file := range quoted.FindAllStringSubmatch(cells[2], -1) {
			code, err := os.ReadFile(filepath.Join(root, file[1]))
			if err != nil {
				t.Error(err)
			}
			any := false
			for _, name := range names {
				if regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name[1] + `\(`).Match(code) {
					found[name[1]], any = true, true
				}
			}
			if !any {
				t.Errorf("%s declares none of %s", file[1], strings.TrimSpace(cells[3]))
			}
		}
		if len(found) != len(names) {
			t.Errorf("not all names of %q are declared", strings.TrimSpace(cells[1]))
		}
	}
	if rows < 8 {
		t.Errorf("%d rows", rows)
	}
}
