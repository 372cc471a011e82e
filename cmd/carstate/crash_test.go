package main_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

const kills = 6

// Each sample has a vehicle of its own, so none hides a lost one.
func TestKill_LosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
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
		// In every second round, the timer starts after the first acknowledgment, for slow disks.
		waits := round%2 == 1 && timer.Stop()
		began := time.Now()
		for i := 0; ; i++ {
			var vids []string
			for j := range 1 + random.IntN(20) {
				vids = append(vids, fmt.Sprintf("r%dn%dx%d", round, i, j))
			}
			n, err := post(p, key, vids)
			if errors.Is(err, testkit.ErrRefused) {
				if !strings.Contains(err.Error(), "HTTP 503") || time.Since(began) > time.Minute {
					t.Fatalf("telemetry: got %v, want HTTP 503 for a minute at most", err)
				}
				continue
			}
			if err != nil {
				break
			}
			if waits {
				waits = false
				timer.Reset(after)
			}
			if n != len(vids) {
				t.Fatalf("telemetry: got %d samples accepted, want %d", n, len(vids))
			}
			acknowledged = append(acknowledged, vids...)
		}
		timer.Stop()
		p.Kill()
		p = start(t, dir, "--max-age", "24h")
		t.Logf("round %d: killed after %s, %d samples acknowledged", round, after, len(acknowledged)-before)
	}
	// A loss is permanent, so check all rounds at the end.
	for _, vid := range acknowledged {
		testkit.NoError(t, until(30*time.Second, func() error {
			a, err := p.ask(drivingPath, token, vid)
			if err == nil && (a.Status != 1 || a.Driving != "1") {
				err = fmt.Errorf("an acknowledged sample is lost: %s is %+v", vid, a)
			}
			return err
		}))
	}
	if len(acknowledged) < kills {
		t.Fatalf("the samples acknowledged in all: got %d, want %d or more", len(acknowledged), kills)
	}
}

func TestStart_SaysHowTheLastProcessEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, want := range []int{0, 0, 1} {
		p := start(t, dir)
		if got := strings.Count(p.log.String(), "the last process did not end in order"); got != want {
			t.Errorf("start %d: got %d warnings, want %d:\n%s", i, got, want, p.log)
		}
		if i == 0 {
			p.stop(t)
		} else {
			p.Kill()
		}
	}
}

type listens interface{ URL(listener string) string }

func post(p listens, key string, vids []string) (int, error) {
	return testkit.Post(p.URL(nodeprocess.Ingest), key, vids)
}

func postLines(p listens, key, lines string) (int, error) {
	return testkit.PostLines(p.URL(nodeprocess.Ingest), key, lines)
}
