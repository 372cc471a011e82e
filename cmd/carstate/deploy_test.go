package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

const deployDir = "../../deploy"

func tool(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	startsPrograms(t)
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("this test needs %s: run as root scripts/setup-tests.sh", name)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: got %v, want no error\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	testkit.NoError(t, err)
	return string(text)
}

// The copies start the built program.
func TestSystemdUnit(t *testing.T) {
	dir := t.TempDir()
	unit := filepath.Join(dir, "carstate.service")
	installed := "ExecStart=/usr/local/bin/carstate serve "
	text := readFile(t, deployDir+"/systemd/carstate.service")
	if strings.Count(text, installed) != 1 {
		t.Fatalf("carstate.service: got %d times %q, want it once", strings.Count(text, installed), installed)
	}
	text = strings.Replace(text, installed, "ExecStart="+binary+" serve ", 1)
	testkit.NoError(t, os.WriteFile(unit, []byte(text), 0o600))
	if out := tool(t, "", "systemd-analyze", "verify", "--man=no", unit); strings.Contains(out, unit) {
		t.Errorf("systemd about the service: got\n%s\nwant nothing", out)
	}
	for _, name := range []string{"carstate-backup.service", "carstate-backup.timer"} {
		text := strings.ReplaceAll(readFile(t, deployDir+"/systemd/"+name), "/usr/local/bin/carstate ", binary+" ")
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	timer := filepath.Join(dir, "carstate-backup.timer")
	if out := tool(t, "", "systemd-analyze", "verify", "--man=no", timer,
		filepath.Join(dir, "carstate-backup.service")); strings.Contains(out, dir) {
		t.Errorf("systemd about the timer: got\n%s\nwant nothing", out)
	}
	tool(t, "", "systemd-analyze", "security", "--offline=true", "--threshold=25", unit)

	root := filepath.Join(dir, "root")
	testkit.NoError(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	users, err := filepath.Abs(deployDir + "/systemd/carstate.sysusers")
	testkit.NoError(t, err)
	tool(t, "", "systemd-sysusers", "--root="+root, users)
	user := regexp.MustCompile(`(?m)^carstate:x:\d+:\d+:.*nologin$`)
	if passwd := readFile(t, root+"/etc/passwd"); !user.MatchString(passwd) {
		t.Errorf("/etc/passwd: got\n%s\nwant the user carstate without a login", passwd)
	}
}

// TestConfigExample also enables all commented settings.
func TestConfigExample(t *testing.T) {
	cert, key, _ := testkit.Certificate(t)
	text := readFile(t, deployDir+"/carstate.env")
	all := regexp.MustCompile(`(?m)^#(CARSTATE_[A-Z_]+=)`).ReplaceAllString(text, "$1")
	for _, plain := range []string{"CARSTATE_QUERY_ADDR=127", "CARSTATE_INGEST_ADDR=127"} {
		all = strings.Replace(all, plain, "#"+plain, 1)
	}
	all = strings.NewReplacer("/etc/carstate/cert.pem", cert, "/etc/carstate/key.pem", key).Replace(all)
	if strings.Count(all, "\n") != strings.Count(text, "\n") || !strings.Contains(all, "\nCARSTATE_TLS_CERT="+cert) ||
		!strings.Contains(all, "\nCARSTATE_BEHIND_PROXY=true") {
		t.Fatalf("carstate.env: got\n%s\nwant every setting switched on", all)
	}
	for _, settings := range []string{text, all} {
		for _, m := range regexp.MustCompile(`(?m)^(CARSTATE_\w+)=(.*)$`).FindAllStringSubmatch(settings, -1) {
			t.Setenv(m[1], m[2])
		}
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"serve", "--check"}, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Errorf("serve --check: got exit code %d, %s, want %d, with\n%s", code, &stderr, exitOK, settings)
		}
	}
}

func alertNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(readFile(t,
		deployDir+"/prometheus/alerts.yml"), -1) {
		names = append(names, m[1])
	}
	if len(names) < 10 {
		t.Fatalf("alerts.yml: got %d alerts, want 10 or more", len(names))
	}
	return names
}

func TestAlerts_FireAndAreDocumented(t *testing.T) {
	t.Parallel()
	dir := deployDir + "/prometheus/"
	tool(t, "", "promtool", "check", "config", "--lint-fatal", dir+"prometheus.yml")
	tool(t, "", "promtool", "check", "rules", "--lint-fatal", dir+"alerts.yml")
	tests, args := "", []string{"test", "rules"}
	for _, name := range []string{"alerts_test.yml", "alerts_seconds_test.yml", "alerts_days_test.yml"} {
		tests, args = tests+readFile(t, dir+name), append(args, dir+name)
	}
	tool(t, "", "promtool", args...)
	alerts := readFile(t, dir+"alerts.yml")
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^### (Carstate\w+)$`).FindAllStringSubmatch(readFile(t,
		"../../docs/metrics.md"), -1) {
		sections = append(sections, m[1])
	}
	names := alertNames(t)
	if !slices.Equal(sections, names) {
		t.Errorf("docs/metrics.md: got the sections\n%q, want those of the alerts\n%q", sections, names)
	}
	for _, name := range names {
		if !strings.Contains(tests, `{labels: '{alertname="`+name+`"}', value: 1}`) {
			t.Errorf("%s: got no test in which it fires, want one", name)
		}
		section := "{{ $externalLabels.carstate_docs }}/metrics.md#" + strings.ToLower(name)
		if !strings.Contains(alerts, `runbook_url: "`+section+"\"\n") {
			t.Errorf("%s: got no runbook_url %q, want that", name, section)
		}
	}
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
	FieldConfig *struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

func dashboard(t *testing.T) (panels []panel, exprs []string) {
	t.Helper()
	var d struct {
		UID           string  `json:"uid"`
		Title         string  `json:"title"`
		SchemaVersion int     `json:"schemaVersion"`
		Panels        []panel `json:"panels"`
		Annotations   struct {
			List []struct {
				Expr string `json:"expr"`
			} `json:"list"`
		} `json:"annotations"`
	}
	testkit.NoError(t, json.Unmarshal([]byte(readFile(t, deployDir+"/grafana/carstate.json")), &d))
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 39 || len(d.Panels) < 20 {
		t.Fatalf("got %q, %q, schema %d, %d panels, want both, 39, 20", d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}
	variables := strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*")
	add := func(expr string) {
		expr = variables.Replace(expr)
		if strings.Contains(expr, "$") {
			t.Errorf("%s: got a variable that the dashboard does not have, want none", expr)
		}
		exprs = append(exprs, expr)
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			add(a.Expr)
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			add(target.Expr)
		}
	}
	return d.Panels, exprs
}

// Panels do not overlap, have what Grafana needs, and expressions that promtool parses.
func TestDashboard(t *testing.T) {
	panels, exprs := dashboard(t)
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q: got no title, or an id of another one, want its own", p.ID, p.Title)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%q: got the place %+v, want one within 24 columns", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("%q: got a place of %q, want its own", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		switch p.Type {
		case "row":
			continue
		case "stat", "timeseries":
			if p.FieldConfig == nil || p.FieldConfig.Defaults.Unit == "" {
				t.Errorf("%q: got no unit, want one", p.Title)
			}
		case "table":
		default:
			t.Errorf("%q: got type %s, want row, stat, timeseries or table", p.Title, p.Type)
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" {
				t.Errorf("%q: got the target %q again, want a name of its own", p.Title, target.RefID)
			}
			refs[target.RefID] = true
		}
		if len(refs) == 0 {
			t.Errorf("%q: got no target, want one", p.Title)
		}
	}
	var rules strings.Builder
	rules.WriteString("groups: [{name: dashboard, rules: [")
	for _, expr := range exprs {
		quoted, _ := json.Marshal(expr)
		rules.WriteString("{record: x, expr: " + string(quoted) + "},\n")
	}
	rules.WriteString("]}]\n")
	file := filepath.Join(t.TempDir(), "rules.yml")
	testkit.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	tool(t, "", "promtool", "check", "rules", "--lint=none", file)
}
