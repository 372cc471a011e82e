package archtest_test

import (
	"regexp"
	"strings"
	"testing"
)

// Each row's file declares one of its functions, and each function is declared.
func TestWhereToLook(t *testing.T) {
	rows := 0
	for line := range strings.Lines(section(read(t, "ARCHITECTURE.md"), "Where to look")) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(line, "`") {
			continue
		}
		rows++
		names := backticked.FindAllStringSubmatch(cells[3], -1)
		found := make(map[string]bool)
		for _, file := range backticked.FindAllStringSubmatch(cells[2], -1) {
			code, any := read(t, file[1]), false
			for _, name := range names {
				if regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name[1] + `\(`).MatchString(code) {
					found[name[1]], any = true, true
				}
			}
			if !any {
				t.Errorf("%s: got no declaration of %s, want one", file[1], strings.TrimSpace(cells[3]))
			}
		}
		if len(found) != len(names) {
			t.Errorf("%q: got %d of %d names declared, want all", strings.TrimSpace(cells[1]), len(found), len(names))
		}
	}
	if rows < 8 {
		t.Errorf("\"Where to look\": got %d rows, want 8 or more", rows)
	}
}
