package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func (p *process) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(p.URL(nodeprocess.Admin) + "/metrics")
	testkit.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: got HTTP %d, %v, want 200", resp.StatusCode, err)
	}
	return string(text)
}

// useEverything does, at least once, whatever a metric counts.
func useEverything(t *testing.T, p *process) (vid, token, key string) {
	t.Helper()
	vid, token = "metered1", p.issue(t)
	p.carstate(t, "token", "issue", "--developer", "Grace", "--vehicles", "all", "--expires", "3d")
	key = p.addSource(t, "gateway")
	p.carstate(t, "replay", demoDrive, "--vid", vid)
	p.carstate(t, "replay", demoDrive, "--vid", "metered2", "--source", "gateway", "--key", key,
		"--mqtt-url", "mqtt://"+p.Address(nodeprocess.MQTT))
	refused := exec.Command(binary, "replay", demoDrive, "--vid", "x", "--source", "gateway", "--key", "wrong",
		"--mqtt-url", "mqtt://"+p.Address(nodeprocess.MQTT))
	if out, err := refused.CombinedOutput(); err == nil {
		t.Errorf("a wrong key: got %s, want an error", out)
	}
	req, err := http.NewRequest(http.MethodGet, p.URL(nodeprocess.Admin)+"/v1/tokens", nil)
	testkit.NoError(t, err)
	req.Header.Set("Authorization", "Bearer wrong")
	resp, err := http.DefaultClient.Do(req)
	testkit.NoError(t, err)
	resp.Body.Close()
	testkit.NoError(t, until(time.Minute, func() error {
		a, err := p.ask(drivingPath, token, vid)
		if err == nil && a.Status != 1 {
			err = fmt.Errorf("no answer: %+v", a)
		}
		return err
	}))
	for _, wrong := range []string{"cst_wrong", ""} {
		_, err := p.ask(drivingPath, wrong, vid)
		testkit.NoError(t, err)
	}
	return vid, token, key
}

// The values of another label could be many, or a stranger's.
var labels = []string{"call", "code", "driving", "free_flow", "goversion", "kind", "le", "listener", "operation", "outcome",
	"partition", "protocol", "reason", "state", "stream", "throttle", "unit", "version"}

func TestMetrics_NamesAndLabels(t *testing.T) {
	t.Parallel()
	cert, key, _ := testkit.Certificate(t)
	p := start(t, t.TempDir(), "--access-log", filepath.Join(t.TempDir(), "access.log"), "--max-age", "24h",
		"--tls-cert", cert, "--tls-key", key, "--query-addr", "127.0.0.1:0")
	// After a stall of the machine, there may be an overload.
	testkit.NoError(t, until(time.Minute, testkit.Says(p.URL(nodeprocess.Admin)+"/metrics", http.StatusOK,
		`(?m)^carstate_overloaded\{listener="ingest"\} 0$`)))
	if text := p.metrics(t); !strings.Contains(text, "carstate_backup_timestamp_seconds 0\n") {
		t.Error("the time before the first backup: got one, want 0")
	}
	p.carstate(t, "backup", filepath.Join(t.TempDir(), "backup"))
	text := p.metrics(t)
	documented(t, text, "Every node", "One machine")
	tool(t, text, "promtool", "check", "metrics")
	for _, m := range regexp.MustCompile(`(?m)^carstate_\w+\{(.*)\} `).FindAllStringSubmatch(text, -1) {
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[1], -1) {
			if !slices.Contains(labels, l[1]) {
				t.Errorf("%s: got the label %s, want one of %q", m[0], l[1], labels)
			}
		}
	}
	for _, want := range []string{
		"carstate_ready 1\n",
		`carstate_stream_limit_bytes{stream="TELEMETRY"} 4.294967296e+09`,
		`carstate_build_info{goversion="go1.`,
		"carstate_road_stretches 0\n",
		`carstate_road_stretches_by_state{state="jam"} 0`,
		`carstate_vehicles_by_state{driving="not_driving"} 0`,
		`carstate_vehicles_by_state{throttle="anomaly"} 0`,
		"carstate_backup_timestamp_seconds 1.",
		`carstate_positions_dropped_total{reason="jump"} 0`,
		`carstate_driving_judged_total{free_flow="road"} 0`,
		`carstate_roads_refused_total{reason="profile"} 0`,
		`carstate_data_dir_bytes{kind="reserve"} `,
		"process_start_time_seconds ",
		"go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics: got no %q, want it", want)
		}
	}
}

// documented compares docs/metrics.md with a node: each metric has a row with its type, labels and
// help, and the reverse.
func documented(t *testing.T, text string, sections ...string) {
	t.Helper()
	type row struct{ kind, labels, help string }
	rows, wanted := make(map[string]row), make(map[string]bool)
	section := ""
	for line := range strings.Lines(readFile(t, "../../docs/metrics.md")) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if name := strings.Trim(cells[0], "| `"); strings.HasPrefix(name, "carstate_") && len(cells) == 5 {
			rows[name] = row{cells[1], cells[2], cells[3]}
			if slices.Contains(sections, section) {
				wanted[name] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (carstate_\w+) (.*)\n# TYPE \w+ `+
		`(\w+)\n((?:carstate_.*\n)*)`).FindAllStringSubmatch(text, -1) {
		var of []string
		for _, l := range regexp.MustCompile(`[{,](\w+)="`).FindAllStringSubmatch(m[4], -1) {
			if l[1] != "le" {
				of = append(of, "`"+l[1]+"`")
			}
		}
		slices.Sort(of)
		of = slices.Compact(of)
		is := row{m[3], strings.Join(of, ", "), m[2]}
		if got := rows[m[1]]; got != is {
			t.Errorf("docs/metrics.md about %s: got %q, want %q", m[1], got, is)
		}
		delete(wanted, m[1])
	}
	for name := range wanted {
		t.Errorf("docs/metrics.md: got %s, which the node has not, want it absent", name)
	}
}

// TestExternalNATS_SurvivesRestart checks these.
var ofClusters = []string{"carstate_feed_age_seconds", "carstate_stream_records", "carstate_stream_copies_missing",
	"carstate_newer_records_total"}

// Every expression of the dashboard and every metric of the alerts has a value, and no alert fires.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "--max-age", "24h")
	vid, token, key := useEverything(t, p)
	prometheus := startPrometheus(t, p.Address(nodeprocess.Admin))
	_, exprs := dashboard(t)
	alerts := readFile(t, deployDir+"/prometheus/alerts.yml")
	for _, m := range regexp.MustCompile(`(?:carstate|process)_\w+(?:\{[^}]*\})?`).FindAllString(alerts, -1) {
		if strings.HasPrefix(m, "carstate_tls_") || m == "carstate_docs" {
			continue // exists only with a certificate, and is a label
		}
		exprs = append(exprs, m)
	}
	begin := time.Now()
	for _, expr := range exprs {
		onCluster := slices.ContainsFunc(ofClusters, func(name string) bool { return strings.Contains(expr, name) })
		if onCluster || strings.Contains(expr, "carstate_tls_") || strings.HasPrefix(expr, "changes(") {
			continue
		}
		if err := until(time.Minute, func() error {
			if time.Since(begin) > time.Second {
				begin = time.Now()
				if _, err := p.ask(drivingPath, token, vid); err != nil {
					return err
				}
				if _, err := p.ask(drivingPath, "cst_wrong", vid); err != nil {
					return err
				}
				if _, err := post(p, key, []string{"not a vid"}); !errors.Is(err, testkit.ErrRefused) {
					return fmt.Errorf("a vid that is none was not refused: %w", err)
				}
			}
			return prometheus.shows(expr)
		}); err != nil {
			t.Errorf("%s: got %v, want a value", expr, err)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Name      string
				Health    string
				State     string
				LastError string
			}
		}
	}
	prometheus.get(t, "/api/v1/rules", &rules)
	seen := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			seen++
			// The samples that the test had refused, and its token that expires soon, may make
			// alerts pending.
			if r.Health != "ok" || r.State == "firing" {
				t.Errorf("%s: got %s, %s %s, want ok, and not firing", r.Name, r.Health, r.State, r.LastError)
			}
		}
	}
	if seen != len(alertNames(t)) {
		t.Errorf("the rules of Prometheus: got %d, want %d", seen, len(alertNames(t)))
	}
	text := p.metrics(t)
	for _, secret := range []string{vid, token, token[4:], "gateway", "Ada"} {
		if strings.Contains(text, secret) {
			t.Errorf("the metrics: got %q, want it nowhere", secret)
		}
	}
}

type watcher struct{ url string }

func startPrometheus(t *testing.T, target string) watcher {
	t.Helper()
	dir := t.TempDir()
	config := readFile(t, deployDir+"/prometheus/prometheus.yml")
	config = strings.NewReplacer("127.0.0.1:8082", target, "15s", "1s").Replace(config)
	for name, text := range map[string]string{"prometheus.yml": config,
		"alerts.yml": readFile(t, deployDir+"/prometheus/alerts.yml")} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Fatal("this test needs prometheus: run as root scripts/setup-tests.sh")
	}
	// Prometheus does not report a port that the system chose, and another program may take ours.
	var log *testkit.Buffer
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.NoError(t, err)
		addr := l.Addr().String()
		l.Close()
		log = new(testkit.Buffer)
		cmd := exec.Command("prometheus", "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data",
			"--web.listen-address="+addr)
		cmd.Stdout, cmd.Stderr = log, log
		testkit.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		w := watcher{"http://" + addr}
		err = until(time.Minute, func() error {
			select {
			case <-ended:
				return nil
			default:
			}
			resp, err := http.Get(w.url + "/-/ready")
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return errors.New(resp.Status)
			}
			return nil
		})
		select {
		case <-ended:
			continue
		default:
		}
		t.Cleanup(func() { cmd.Process.Kill(); <-ended })
		if err != nil {
			t.Fatalf("the start of Prometheus: got %v, want no error:\n%s", err, log)
		}
		return w
	}
	t.Fatalf("the start of Prometheus: got its end, want it ready:\n%s", log)
	return watcher{}
}

func (w watcher) get(t *testing.T, path string, into any) {
	t.Helper()
	testkit.NoError(t, w.ask(path, into))
}

func (w watcher) ask(path string, into any) error {
	resp, err := http.Get(w.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status string
		Error  string
		Data   json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

func (w watcher) shows(expr string) error {
	var data struct{ Result []json.RawMessage }
	if err := w.ask("/api/v1/query?"+url.Values{"query": {expr}}.Encode(), &data); err != nil {
		return err
	}
	if len(data.Result) == 0 {
		return errors.New("nothing to show")
	}
	return nil
}

// The commands of docs/metrics.md count the connections of each client.
func TestWhoIsConnected(t *testing.T) {
	commands := regexp.MustCompile("`(ss [^`]*)`").FindAllStringSubmatch(readFile(t, "../../docs/metrics.md"), -1)
	if len(commands) == 0 {
		t.Fatal("docs/metrics.md: got no command ss, want one")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer l.Close()
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		testkit.NoError(t, err)
		defer c.Close()
		served, err := l.Accept()
		testkit.NoError(t, err)
		defer served.Close()
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	testkit.NoError(t, err)
	for _, c := range commands {
		if !strings.Contains(c[1], ":8080") {
			t.Errorf("%s: got another port, want :8080", c[1])
		}
		out := tool(t, "", "sh", "-c", strings.ReplaceAll(c[1], ":8080", ":"+port))
		if strings.Join(strings.Fields(out), " ") != "3 127.0.0.1" {
			t.Errorf("%s: got %q, want 3 127.0.0.1", c[1], out)
		}
	}
}
