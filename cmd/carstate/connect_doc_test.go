package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/nodeprocess"
)

// TestConnectExamples runs the commands of docs/connect.md, and reads its mapping.
func TestConnectExamples(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	text, err := os.ReadFile("../../docs/connect.md")
	if err != nil {
		t.Fatal(err)
	}
	now := regexp.MustCompile(`"time":\d{13}`)
	ran := map[string]int{}
	for _, m := range regexp.MustCompile("(?s)```(sh|console|yaml)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		switch ran[m[1]]++; m[1] {
		case "sh":
			c := exec.CommandContext(t.Context(), "sh", "-e", "-c",
				strings.ReplaceAll(m[2], "http://127.0.0.1:8081", p.URL(nodeprocess.Ingest)))
			c.Env = append(os.Environ(), "CARSTATE_KEY="+p.addSource(t, "gateway"))
			if out, err := c.Output(); err != nil || string(out) != `{"accepted":1,"rejected":[]}`+"\n" {
				t.Errorf("%s: %s, %v", m[2], out, err)
			}
		case "console":
			command, rest, _ := strings.Cut(m[2], "\n")
			message, want, _ := strings.Cut(rest, "=> ")
			c := exec.CommandContext(t.Context(), plain, strings.Fields(command)[2:]...)
			c.Stdin = strings.NewReader(message)
			out, err := c.Output()
			if strings.Contains(want, "NOW") {
				out, want = now.ReplaceAll(out, nil), strings.Replace(want, `"time":NOW`, "", 1)
			}
			if err != nil || !bytes.Equal(out, []byte(want)) {
				t.Errorf("%s: got %s, want %s (%v)", command, out, want, err)
			}
		case "yaml":
			if _, err := format.Parse(m[2]); strings.Contains(m[2], "signals:\n") && err != nil {
				t.Errorf("%s: %v", m[2], err)
			}
		}
	}
	if ran["sh"] != 1 || ran["console"] != 4 || ran["yaml"] != 2 {
		t.Errorf("%v examples", ran)
	}
}
