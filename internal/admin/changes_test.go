package admin_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/opstest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

type following struct {
	*service
	t     *testing.T
	fleet opstest.Fleet
}

func follow(t *testing.T) *following {
	t.Helper()
	f := &following{t: t, fleet: opstest.NewFleet()}
	clock := testkit.NewClock(noon)
	f.fleet.Changes = ops.NewChanges(f.fleet.Table, 5*time.Minute, clock.Now)
	f.service = startOps(t, func(c *ops.Config) {
		c.Fleet, c.MaxAge, c.Changes = f.fleet.Table, 5*time.Minute, f.fleet.Changes
	})
	f.clock = clock
	return f
}

// With the state 0, it is not driving.
func (f *following) report(id vehicle.ID, s driving.State, system throttle.System) {
	now := signal.At(f.clock.Now())
	f.fleet.Put(id, vehicle.DrivingVerdict{State: s, NotDriving: s == 0, Time: now},
		vehicle.ThrottleVerdict{System: system, Time: now})
}

type events struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
	id    string
}

func (f *following) open(query, after string, by *client.Client) *events {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(cancel)
	req, _ := http.NewRequestWithContext(ctx, "GET", f.URL+"/v1/changes"+query, nil)
	req.Header.Set("Authorization", "Bearer "+by.Key)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := f.HTTP.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		f.t.Fatalf("GET /v1/changes%s: got %+v, %v; want 200 and text/event-stream", query, resp, err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	e := &events{t: f.t, lines: bufio.NewScanner(resp.Body), close: cancel}
	for begun := false; !begun && e.lines.Scan(); {
		e.id, begun = strings.CutPrefix(e.lines.Text(), "id: ")
	}
	return e
}

// As "VID was>is/was>is", or as the text of a gap.
func (e *events) next(n int) (got []string) {
	e.t.Helper()
	for len(got) < n && e.lines.Scan() {
		if id, ok := strings.CutPrefix(e.lines.Text(), "id: "); ok {
			e.id = id
		}
		data, ok := strings.CutPrefix(e.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var c struct {
			ops.ChangedVehicle
			Gap string `json:"gap"`
		}
		if err := json.Unmarshal([]byte(data), &c, json.RejectUnknownMembers(true)); err != nil {
			e.t.Fatalf("the event %s: got %v, want a changed vehicle or a gap", data, err)
		}
		got = append(got, cmp.Or(c.Gap,
			fmt.Sprintf("%s %s>%s/%s>%s", c.VID, c.Was.Driving, c.Is.Driving, c.Was.Throttle, c.Is.Throttle)))
	}
	return got
}

func (e *events) want(want ...string) {
	e.t.Helper()
	if got := e.next(len(want)); !slices.Equal(got, want) {
		e.t.Errorf("got the events %q, want %q", got, want)
	}
}

func TestChanges(t *testing.T) {
	f := follow(t)
	f.want(t, "HEAD", "/v1/changes", "", http.StatusOK, "")
	f.report("Before", driving.Jam, throttle.Normal) // nobody follows yet
	all := f.open("", "", f.Client)
	first := all.id
	if !strings.HasSuffix(first, "-0") {
		t.Errorf("got the id %s, want no change before the first client", first)
	}
	jams := f.open("?driving=jam,stale", "", f.Client)
	faults := f.open("?throttle=anomaly", "", f.Client)
	f.report("A", driving.Normal, throttle.Normal)
	f.report("A", driving.Normal, throttle.Normal) // no change
	f.report("A", driving.Jam, throttle.Normal)
	f.report("B", 0, throttle.Anomaly)
	f.report("A", driving.Slow, throttle.Normal)
	four := []string{"A unknown>normal/unknown>normal", "A normal>jam/normal>normal",
		"B unknown>not_driving/unknown>anomaly", "A jam>slow/normal>normal"}
	all.want(four...)
	jams.want(four[1], four[3])
	faults.want(four[2])

	// Six minutes later, B has reported, and A has not.
	f.clock.Advance(6 * time.Minute)
	f.report("B", 0, throttle.Normal)
	go f.fleet.Changes.Run(t.Context())
	all.want("B not_driving>not_driving/anomaly>normal")
	stale := all.next(2)
	slices.Sort(stale)
	if want := []string{"A slow>stale/normal>stale", "Before jam>stale/normal>stale"}; !slices.Equal(stale, want) {
		t.Errorf("got the events %q, want %q", stale, want)
	}
	f.report("A", driving.Slow, throttle.Normal)
	all.want("A stale>slow/stale>normal")
	all.close()

	// A forgotten vehicle is in no later response.
	f.fleet.Changes.Forget("B")
	again := f.open("", first, f.Client)
	again.want(four[0], four[1], four[3])
	if again.next(3); again.id != all.id {
		t.Errorf("got the id %s after all events, want %s", again.id, all.id)
	}
}

func TestChanges_Gap(t *testing.T) {
	f := follow(t)
	began := f.open("", "", f.Client)
	began.close()
	run, _, _ := strings.Cut(began.id, "-")
	for i := range 1<<16 + 1 {
		f.report("A", driving.State(1+i%2), throttle.Normal)
	}
	for after, says := range map[string]string{
		began.id: "more than 65536 changes followed", "ANOTHER1-5": "the id is of another node", "x": "another node",
		run + "-99999999": "another node", run + "--1": "another node",
	} {
		e := f.open("", after, f.Client)
		if got := e.next(1)[0]; !strings.Contains(got, says) || !strings.HasSuffix(got,
			": read GET /v1/vehicles, then apply the events that follow") || e.id != run+"-65537" {
			t.Errorf("after %s: got %q and the id %s, want %q and the newest id", after, got, e.id, says)
		}
		e.close()
	}
}

func TestChanges_Bounds(t *testing.T) {
	f := follow(t)
	for query, says := range map[string]string{
		"?driving=fast": "normal, slow, jam, not_driving, stale, unknown", "?throttle=jam": "normal, anomaly, stale, unknown",
		"?vid=secretVid": "changes take driving and throttle", "?driving=jam&driving=slow": "is given once",
	} {
		f.want(t, "GET", "/v1/changes"+query, "", http.StatusBadRequest, says).lacks(t, "secretVid")
	}

	reader, err := f.AddOperator(t.Context(), "reader", true)
	testkit.NoError(t, err)
	last := f.open("", "", &client.Client{Key: reader.Key})
	for range 31 {
		f.open("", "", f.Client)
	}
	f.want(t, "GET", "/v1/changes", "", http.StatusServiceUnavailable, "32 clients follow")
	testkit.NoError(t, second(f.RemoveOperator(t.Context(), "reader")))
	if got := last.next(1); len(got) != 0 {
		t.Errorf("got the event %v with a removed key, want the end", got)
	}
	testkit.Await(t, "room for another client", func() bool {
		return f.do(t, "HEAD", "/v1/changes", "").status == http.StatusOK
	})
}
