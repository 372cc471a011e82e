package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"carstate/internal/nodeprocess"
)

// kills is how often TestKill ends the program at a random moment.
const kills = 10

// TestKill kills the program while it takes telemetry in, starts it again on
// the same directory, and wants to see the effect of every sample that was
// acknowledged. Each sample is of a vehicle of its own, so that none can hide
// behind another.
func TestKill(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	p := start(t, dir, "--max-age", "24h")
	token, key := p.issue(t), p.addSource(t, "gateway")
	var acknowledged []string
	for round := range kills {
		before := len(acknowledged)
		after := time.Duration(20+random.IntN(400)) * time.Millisecond
		victim := p
		timer := time.AfterFunc(after, func() { _ = victim.Signal(syscall.SIGKILL) })
		// In every other round something is acknowledged before, however slow the disk is.
		waits := round%2 == 1 && timer.Stop()
		began := time.Now()
		for i := 0; ; i++ {
			var vids []string
			for j := range 1 + random.IntN(20) {
				vids = append(vids, fmt.Sprintf("r%dn%dx%d", round, i, j))
			}
			n, err := post(p, key, vids)
			if errors.Is(err, errRefused) {
				if !strings.Contains(err.Error(), "HTTP 503") || time.Since(began) > time.Minute {
					t.Fatal(err)
				}
				continue // the disk is too slow at present
			}
			if err != nil {
				break // the process is gone
			}
			if waits {
				waits = false
				timer.Reset(after)
			}
			if n != len(vids) {
				t.Fatalf("%d of %d samples were accepted", n, len(vids))
			}
			acknowledged = append(acknowledged, vids...)
		}
		timer.Stop()
		p.Kill()
		p = start(t, dir, "--max-age", "24h")
		t.Logf("round %d: killed after %s, %d samples acknowledged", round, after, len(acknowledged)-before)
		for _, vid := range acknowledged {
			if err := until(30*time.Second, func() error {
				a, err := p.ask(drivingPath, token, vid)
				if err == nil && (a.Status != 1 || a.Driving != "1") {
					err = fmt.Errorf("an acknowledged sample is lost: %s is %+v", vid, a)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(acknowledged) < kills {
		t.Fatalf("only %d samples were acknowledged in all", len(acknowledged))
	}
}

var errRefused = errors.New("refused")

// listens is a node that tells where it listens.
type listens interface{ URL(listener string) string }

// post sends one sample of each vehicle and returns how many were accepted.
func post(p listens, key string, vids []string) (int, error) {
	var body bytes.Buffer
	for _, vid := range vids {
		fmt.Fprintf(&body, "{\"vid\":%q,\"time\":%d,\"signals\":{\"Vehicle.Speed\":50,\"Vehicle.OBD.ThrottlePosition\":20}}\n", vid, time.Now().UnixMilli())
	}
	return postLines(p, key, body.String())
}

// postLines sends NDJSON and returns how many samples were accepted.
func postLines(p listens, key, lines string) (int, error) {
	req, err := http.NewRequest(http.MethodPost, p.URL(nodeprocess.Ingest)+"/v1/telemetry", strings.NewReader(lines))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusAccepted {
		return 0, fmt.Errorf("%w: HTTP %d: %s", errRefused, resp.StatusCode, text)
	}
	var answer struct {
		Accepted int `json:"accepted"`
	}
	err = json.Unmarshal(text, &answer)
	return answer.Accepted, err
}
