package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

var movedCars = flag.Int("move.cars", 1000, "cars of TestMove_BetweenMachineAndCluster; a million needs -unraced")

// Cars report to the old service during backup and restore.
func TestMove_BetweenMachineAndCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, "--max-age", "24h")
	m := moved{token: p.issue(t), key: p.addSource(t, "gateway")}
	m.narrow = strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Bo", "--vehicles", movedCar(1)))
	p.carstate(t, "operator", "add", "ada")
	// Roads are stored when the node exits.
	for _, ago := range []time.Duration{50 * time.Minute, 30 * time.Minute, 10 * time.Minute} {
		for i := range 4 {
			_, err := postLines(p, m.key, driveOn(fmt.Sprint("road", i), time.Now().Add(-ago), 900, 60))
			testkit.NoError(t, err)
		}
	}
	const forgotten = "forgotten1"
	_, err := post(p, m.key, []string{forgotten})
	testkit.NoError(t, err)
	var issued struct {
		ID    string `json:"id"`
		Token string `json:"access_token"`
	}
	testkit.NoError(t, json.Unmarshal([]byte(p.carstate(t, "token", "issue", "--developer", "Ada", "--vehicles", "all",
		"--json")), &issued))
	m.revoked = issued.Token
	testkit.NoError(t, until(time.Minute, func() error { return p.folded(m.revoked, forgotten, p.began) }))
	m.removed = p.addSource(t, "removed")
	p.carstate(t, "source", "remove", "removed")
	p.carstate(t, "token", "revoke", issued.ID)
	p.carstate(t, "forget", forgotten)
	testkit.NoError(t, until(time.Minute, func() (err error) {
		if m.road, err = sumOf(p, "carstate_road_stretches"); err == nil && m.road < 6 {
			err = fmt.Errorf("%g stretches are known", m.road)
		}
		return err
	}))
	p.stop(t)

	p = start(t, dir, "--max-age", "24h")
	m.check(t, p, forgotten)

	servers := clustertest.StartServer(t).URL()
	cluster := start(t, t.TempDir(), "--nats", servers, "--partitions", "4", "--max-age", "24h")
	m.move(t, p, cluster)
	m.check(t, cluster, forgotten)
	p.stop(t)
	if _, err := startProcess(dir, os.Environ(), "--nats", servers); err == nil ||
		!strings.Contains(err.Error(), "--nats-fresh") {
		t.Errorf("the old data directory under --nats: got %v, want the advice --nats-fresh", err)
	}
	start(t, dir, "--nats", servers, "--nats-fresh").stop(t)

	back := start(t, t.TempDir(), "--max-age", "24h")
	m.move(t, cluster, back)
	m.check(t, back, forgotten)
}

type moved struct {
	token, narrow, revoked string
	key, removed           string // valid, removed
	road                   float64
}

func movedCar(i int) string { return fmt.Sprintf("moved%05d", i) }

// All cars report to from during the backup; half of them then report to to.
func (m *moved) move(t *testing.T, from, to *process) {
	t.Helper()
	left := time.Now()
	end := carsReport(t, from, m.key, *movedCars)
	// Every new state must be in the backup: a cluster stores it before a query is answered from
	// it; on one machine, the backup does.
	for i := 0; i < *movedCars; i += 7 {
		testkit.NoError(t, from.AwaitAnswer(t.Context(), testkit.Patience, m.token, movedCar(i), left))
	}
	file := filepath.Join(t.TempDir(), "backup")
	began := time.Now()
	from.carstate(t, "backup", file)
	t.Logf("the backup took %s", time.Since(began).Round(time.Second))
	key := file + ".key"
	testkit.NoError(t, os.WriteFile(key, []byte(from.carstate(t, "operator", "backup-key")), 0o600))
	end()

	began = time.Now()
	to.carstate(t, "restore", file, "--backup-key-file", key)
	t.Logf("the restore took %s", time.Since(began).Round(time.Second))
	arrived := time.Now()
	carsReport(t, to, m.key, *movedCars/2)()

	if n, err := sumOf(to, "carstate_vehicles"); err != nil || n < float64(*movedCars) {
		t.Errorf("the vehicles known: got %g, %v, want %d or more", n, err, *movedCars)
	}
	for i := 0; i < *movedCars; i += 7 {
		since := left
		if i < *movedCars/2 {
			since = arrived
		}
		testkit.NoError(t, to.AwaitAnswer(t.Context(), testkit.Patience, m.token, movedCar(i), since))
	}
}

func carsReport(t *testing.T, p *process, key string, cars int) (end func()) {
	t.Helper()
	// Even a slow machine folds more in one pause.
	const pause = 100 * time.Millisecond
	perBody := max(100, cars/2000)
	round := func(ctx context.Context) error {
		pace := time.NewTicker(pause)
		defer pace.Stop()
		for i := 0; i < cars && ctx.Err() == nil; i += perBody {
			<-pace.C
			var vids []string
			for j := range perBody {
				vids = append(vids, movedCar(i+j))
			}
			if err := until(testkit.Patience, func() error { _, err := post(p, key, vids); return err }); err != nil {
				return err
			}
		}
		return nil
	}
	testkit.NoError(t, round(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := round(ctx); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	return func() {
		t.Helper()
		cancel()
		testkit.NoError(t, <-ended)
	}
}

func (m *moved) check(t *testing.T, p *process, forgotten string) {
	t.Helper()
	if _, err := post(p, m.key, []string{movedCar(0)}); err != nil {
		t.Errorf("a source's key: got %v, want no error", err)
	}
	if _, err := post(p, m.removed, []string{movedCar(0)}); !errors.Is(err, testkit.ErrRefused) ||
		!strings.Contains(err.Error(), "HTTP 401") {
		t.Errorf("the key of a source that was removed: got %v, want HTTP 401", err)
	}
	if _, err := post(p, m.key, []string{forgotten}); !errors.Is(err, testkit.ErrRefused) ||
		!strings.Contains(err.Error(), "was forgotten") {
		t.Errorf("telemetry of a forgotten vehicle: got %v, want that it was forgotten", err)
	}
	if a, err := p.ask(drivingPath, m.token, forgotten); err != nil || a.Reason != "unknown" {
		t.Errorf("a forgotten vehicle: got %+v, %v, want the reason unknown", a, err)
	}
	if a, err := p.ask(drivingPath, m.revoked, movedCar(0)); err != nil || a.HTTP != http.StatusUnauthorized {
		t.Errorf("a revoked token: got %+v, %v, want HTTP 401", a, err)
	}
	testkit.NoError(t, p.AwaitAnswer(t.Context(), testkit.Patience, m.token, movedCar(0), p.began))
	if a, err := p.ask(drivingPath, m.narrow, movedCar(0)); err != nil || a.Reason != "unknown" {
		t.Errorf("a token for another car: got %+v, %v, want the reason unknown", a, err)
	}
	if list := p.carstate(t, "operator", "list"); !strings.Contains(list, "ada ") {
		t.Errorf("the operators: got %s, want ada", list)
	}
	testkit.NoError(t, until(testkit.Patience, func() error {
		n, err := sumOf(p, "carstate_road_stretches")
		if err == nil && n != m.road {
			err = fmt.Errorf("%g stretches are known, not %g", n, m.road)
		}
		return err
	}))
}
