package nodeprocess

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestUsageOfThisProcess checks that this process has at least 1 MiB of resident memory, and that
// its processor time grows while it works.
func TestUsageOfThisProcess(t *testing.T) {
	pid := os.Getpid()
	if bytes, err := ResidentOf(pid); err != nil || bytes < 1<<20 {
		t.Errorf("resident memory: got %d bytes, %v; want 1 MiB or more", bytes, err)
	}
	for range int(1e8) { // takes at least a tick of processor time
		if cpu, err := CPUOf(pid); err != nil {
			t.Fatal(err)
		} else if cpu > 0 {
			return
		}
	}
	t.Error("the process has used no processor time")
}

// TestEachLine_AnyLength checks that the whole input is read, whatever the length of its lines.
func TestEachLine_AnyLength(t *testing.T) {
	long := strings.Repeat("x", 3*lineLimit)
	for text, want := range map[string][]string{
		"":                           nil,
		"a\n\nb":                     {"a", "", "b"},
		"a\n" + long + "\nb\n":       {"a", long[:lineLimit], "b"},
		long:                         {long[:lineLimit]},
		long[:lineLimit] + "\nb\n":   {long[:lineLimit], "b"},
		long[:lineLimit-1] + "\nb\n": {long[:lineLimit-1], "b"},
	} {
		var got []string
		eachLine(strings.NewReader(text), func(line []byte) { got = append(got, string(line)) })
		if !slices.Equal(got, want) {
			t.Errorf("%.20q… of %d bytes is read as %d lines, want %d", text, len(text), len(got), len(want))
		}
	}
}
