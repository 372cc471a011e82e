package main_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func sumOf(p *process, metric string) (sum float64, err error) {
	all, err := p.Metrics(context.Background())
	for name, value := range all {
		if name == metric || strings.HasPrefix(name, metric+"{") {
			sum += value
		}
	}
	return sum, err
}

// The road leads north; metres from its beginning.
func onRoad(vid string, at time.Time, metres, kmh float64) string {
	return fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%g,"Vehicle.CurrentLocation.Latitude":%.7f,`+
		`"Vehicle.CurrentLocation.Longitude":11.34,"Vehicle.CurrentLocation.Heading":1}}`+"\n",
		vid, at.UnixMilli(), kmh, 44.5+metres/111_195)
}

func driveOn(vid string, until time.Time, metres, kmh float64) string {
	var lines strings.Builder
	readings := int(metres / (kmh / 3.6 * 5))
	for i := range readings + 1 {
		lines.WriteString(onRoad(vid, until.Add(time.Duration(i-readings)*5*time.Second), float64(i)*kmh/3.6*5, kmh))
	}
	return lines.String()
}

// A jam that one node learns of is used by another for its only car. The target is 3 s.
func TestJamIsKnownToOtherNodes(t *testing.T) {
	t.Parallel()
	c := clustertest.StartCluster(t)
	const partitions = 32
	var nodes []*process
	for range 3 {
		nodes = append(nodes, start(t, t.TempDir(), "--nats", c.URLs(), "--partitions", fmt.Sprint(partitions)))
	}
	key := nodes[0].addSource(t, "gateway")
	testkit.NoError(t, until(time.Minute, func() error {
		shared := 0.0
		for _, p := range nodes {
			n, err := sumOf(p, "carstate_fold_partitions")
			if err != nil || n == 0 {
				return fmt.Errorf("a node has no partitions: %w", err)
			}
			shared += n
		}
		if shared != partitions {
			return fmt.Errorf("%g partitions are shared", shared)
		}
		return nil
	}))
	began := time.Now()
	jammed, own, by := split(t, nodes, key, began.Add(-time.Hour))
	folded, err := sumOf(by, "carstate_driving_judged_total")
	testkit.NoError(t, err)

	// In two different quarters of an hour.
	send := func(lines string) {
		t.Helper()
		testkit.NoError(t, until(time.Minute, func() error { _, err := postLines(nodes[0], key, lines); return err }))
	}
	for _, ago := range []time.Duration{50 * time.Minute, 30 * time.Minute} {
		for _, vid := range jammed {
			send(driveOn(vid, began.Add(-ago), 900, 60))
		}
	}
	testkit.NoError(t, until(time.Minute, func() error {
		n, err := sumOf(by, "carstate_road_stretches")
		if err == nil && n < 6 {
			err = fmt.Errorf("%g stretches are known", n)
		}
		return err
	}))

	e := openCluster(t, cluster.Config{URLs: c.URLs()})
	metres, readings := 0.0, 0
	last := began.Add(-time.Minute)
	crawl := func() (vehicle.State, error) {
		now := time.Now()
		metres += now.Sub(last).Seconds() * 6 / 3.6
		last = now
		readings++
		if _, err := postLines(nodes[0], key, onRoad(own, now, metres, 6)); err != nil {
			return vehicle.State{}, err
		}
		var s vehicle.State
		err := until(10*time.Second, func() (err error) {
			if s, _, err = store.State(t.Context(), e, vehicle.ID(own)); err == nil && s.Time < signal.At(now) {
				err = errors.New("it is not folded")
			}
			return err
		})
		return s, err
	}
	send(driveOn(own, last, 0, 6))
	if s, err := crawl(); err != nil || s.Road.Cars != 0 {
		t.Fatalf("the cars before the jam: got %d, %v, want 0", s.Road.Cars, err)
	}
	for _, vid := range jammed {
		send(driveOn(vid, time.Now(), 400, 6))
	}
	acked := time.Now()
	var s vehicle.State
	testkit.NoError(t, until(time.Minute, func() (err error) {
		if s, err = crawl(); err == nil && (s.Road.Cars < 3 || s.Road.DelayAhead < 2.5) {
			err = fmt.Errorf("%d cars show a delay of %g", s.Road.Cars, s.Road.DelayAhead)
		}
		return err
	}))
	t.Logf("%.2f s after the last reading of the others was acknowledged, the verdict about the car uses %d cars: the "+
		"way ahead takes %.1f times as long as in light traffic",
		time.Since(acked).Seconds(), s.Road.Cars, s.Road.DelayAhead)
	// Then it can know of the jam only from the other node.
	if n, err := sumOf(by, "carstate_driving_judged_total"); err != nil || n-folded > float64(readings+1) {
		t.Errorf("the node of the one car: got %g readings, %v, want %d at most", n-folded, err, readings+1)
	}
}

// split lets one car report at a time, to find the node that folds it.
func split(t *testing.T, nodes []*process, key string, at time.Time) (several []string, one string, by *process) {
	t.Helper()
	cars := make(map[*process][]string)
	for i := 0; ; i++ {
		vid := fmt.Sprintf("car%d", i)
		before := make(map[*process]float64)
		for _, p := range nodes {
			before[p], _ = sumOf(p, "carstate_driving_judged_total")
		}
		_, err := postLines(nodes[0], key, fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":30}}`, vid,
			at.UnixMilli()))
		testkit.NoError(t, err)
		testkit.NoError(t, until(time.Minute, func() error {
			for _, p := range nodes {
				if n, err := sumOf(p, "carstate_driving_judged_total"); err == nil && n > before[p] {
					cars[p] = append(cars[p], vid)
					return nil
				}
			}
			return errors.New("no node has folded it")
		}))
		for _, p := range nodes {
			for _, other := range nodes {
				if len(cars[p]) >= 6 && other != p && len(cars[other]) > 0 {
					return cars[p][:6], cars[other][0], other
				}
			}
		}
	}
}
