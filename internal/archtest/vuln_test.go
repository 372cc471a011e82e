package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVulnerabilityCheck checks that scripts/vuln.sh fails with one line that says what to do if
// there is no vulnerability data, or if VULN has an unknown value, and that a skipped check is
// named in the output.
func TestVulnerabilityCheck(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		env  string
		ok   bool
		says string
	}{
		{"VULN=offline", true, "NOT looked for: VULN=offline"},
		{"VULN=later", false, "VULN may be offline"},
		{"VULNDB=file://" + filepath.Join(empty, "nothing"), false, "no vulnerability data"},
		{"VULNDB=file://" + empty, false, "VULN=offline"},
	} {
		cmd := exec.Command(filepath.Join(root, "scripts/vuln.sh"), root)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), c.env}
		out, err := cmd.CombinedOutput()
		if said := string(out); (err == nil) != c.ok || !strings.Contains(said, c.says) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: %v, %q", c.env, err, said)
		}
	}
}
