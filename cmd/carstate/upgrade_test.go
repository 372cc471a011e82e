package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"carstate/internal/nodeprocess"
)

// TestUpgrade opens the data directory of every earlier release and wants the
// same answers. scripts/make-fixture.sh makes one for each release.
func TestUpgrade(t *testing.T) {
	fixtures, err := filepath.Glob("testdata/upgrade/*.tar.gz")
	if err != nil || len(fixtures) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, file := range fixtures {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) { upgrade(t, file) })
	}
}

func upgrade(t *testing.T, file string) {
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-C", dir, "-xzf", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Token, Key, Revoked, Unfolded string
		LargeID                       string `json:"large_id"`
		LargeVehicles                 int    `json:"large_vehicles"`
		Answers                       []struct{ Op, VID, Body string }
		Events                        []struct{ Action, Object, Detail, Outcome string }
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	p := start(t, filepath.Join(dir, "data"), "--max-age", "87600h")

	get := func(url string, header ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range header {
			req.Header.Set("Authorization", h)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(body))
	}
	query := func(op, token, vid string) (int, string) {
		return get(p.URL(nodeprocess.Query) + "/api/ic/" + op + "?access_token=" + token + "&vid=" + vid)
	}
	for _, a := range want.Answers {
		if _, body := query(a.Op, want.Token, a.VID); body != a.Body {
			t.Errorf("%s of %s: %s, was %s", a.Op, a.VID, body, a.Body)
		}
	}
	if status, _ := query("if_dt_tflow_car_driving_state", want.Revoked, "Steady"); status != http.StatusUnauthorized {
		t.Errorf("the revoked token: %d", status)
	}
	// What was acknowledged and not folded counts.
	if err := until(30*time.Second, func() error {
		if _, body := query("if_dt_tflow_car_driving_state", want.Token, want.Unfolded); !strings.Contains(body, `"status":1`) {
			return fmt.Errorf("%s", body)
		}
		return nil
	}); err != nil {
		t.Errorf("samples that waited: %v", err)
	}
	if _, metrics := get(p.URL(nodeprocess.Admin) + "/metrics"); !regexp.MustCompile(`(?m)^carstate_samples_folded_total [1-9]`).MatchString(metrics) {
		t.Error("nothing was left to fold: the fixture tests less than it should")
	}
	var large struct{ Vehicles []string }
	if err := json.Unmarshal([]byte(p.carstate(t, "token", "show", want.LargeID, "--json")), &large); err != nil || len(large.Vehicles) != want.LargeVehicles {
		t.Errorf("the large grant has %d vehicles, had %d: %v", len(large.Vehicles), want.LargeVehicles, err)
	}
	// Samples so old are a backlog, until somebody looks again.
	if err := until(30*time.Second, func() error {
		accepted, err := postLines(p, want.Key, fmt.Sprintf(`{"vid":"Steady","time":%d,"signals":{"Vehicle.Speed":80}}`, time.Now().UnixMilli()))
		if err == nil && accepted != 1 {
			err = fmt.Errorf("%d accepted", accepted)
		}
		return err
	}); err != nil {
		t.Errorf("the source's key: %v", err)
	}
	key, err := os.ReadFile(filepath.Join(p.Dir, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	_, body := get(p.URL(nodeprocess.Admin)+"/v1/audit", "Bearer "+strings.TrimSpace(string(key)))
	var audit struct {
		Events []struct{ Action, Object, Detail, Outcome string }
	}
	if err := json.Unmarshal([]byte(body), &audit); err != nil || fmt.Sprint(audit.Events) != fmt.Sprint(want.Events) {
		t.Errorf("the audit is %v, was %v: %v", audit.Events, want.Events, err)
	}
	// What is new works on it, and the directory opens again.
	p.carstate(t, "forget", "Slow")
	if _, body := query("if_dt_tflow_car_driving_state", want.Token, "Slow"); !strings.Contains(body, `"status":0`) {
		t.Errorf("forgotten: %s", body)
	}
	p.carstate(t, "backup", filepath.Join(dir, "file"))
	p.stop(t)
	start(t, p.Dir).stop(t)
}
