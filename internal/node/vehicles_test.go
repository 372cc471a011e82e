package node

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"example.org/carstate/internal/test/testkit"
)

func TestMemoryIsTheLeastLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	machine := file("MemTotal:        1000 kB\nMemFree:  1 kB\n")
	for name, c := range map[string]struct {
		root fstest.MapFS
		want uint64
	}{
		"nothing is known": {fstest.MapFS{}, mostMemory},
		"the machine's":    {fstest.MapFS{"proc/meminfo": machine}, 1_024_000},
		"the group's": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("5000\n")}, 5000},
		"that of one above": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("7000\n")}, 7000},
		"a container's": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("6000\n")}, 6000},
		"that of an old kernel": {fstest.MapFS{"proc/meminfo": machine,
			"proc/self/cgroup": file("9:name=systemd:/\n4:memory:/a\n0::/\n"),
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": file("4000\n")}, 4000},
		"no limit": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("1:name=x:/y\n0::/a\n"),
			"sys/fs/cgroup/a/memory.max": file("max\n")}, 1_024_000},
		"more than there is": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("9000000000\n")}, 1_024_000},
		"nonsense in its place": {fstest.MapFS{"proc/meminfo": file("MemTotal: x kB"), "proc/self/cgroup": file("0::\n")},
			mostMemory},
	} {
		if got := memory(c.root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A node that only ingests has a limit, and follows the states, only if configured.
func TestVehicleBoundByRoles(t *testing.T) {
	all := []string{Query, Ingest, Derive, Admin}
	for _, c := range []struct {
		config Config
		states bool
		bound  func(int) bool
	}{
		{Config{Roles: all}, true, func(n int) bool { return n >= leastVehicles }},
		{Config{Roles: all, MaxVehicles: 5}, true, func(n int) bool { return n == 5 }},
		{Config{Roles: []string{Ingest, Derive}}, false, func(n int) bool { return n == 0 }},
		{Config{Roles: []string{Ingest}, MaxVehicles: 5}, true, func(n int) bool { return n == 5 }},
		{Config{Roles: []string{Query, Admin}, MaxVehicles: 5}, true, func(n int) bool { return n == 0 }},
		{Config{Roles: []string{Derive}, MaxVehicles: 5}, false, func(n int) bool { return n == 0 }},
	} {
		if states, n := c.config.needsStates(), c.config.vehicleBound(); states != c.states || !c.bound(n) {
			t.Errorf("%v with %d: a bound of %d, states %t", c.config.Roles, c.config.MaxVehicles, n, states)
		}
	}
}

// At the limit, samples of new vehicles are refused and counted, but not those of known ones in the
// same request, also after a restart with a lower limit.
func TestVehiclesBeyondTheBound(t *testing.T) {
	t.Parallel()
	c := configOf(t)
	c.MaxVehicles = 2
	key := ""
	post := func(n *Node, want int, vids ...string) {
		t.Helper()
		if got, err := testkit.Post(n.URL(IngestAddr), key, vids); got != want || err != nil &&
			!errors.Is(err, testkit.ErrRefused) {
			t.Errorf("%v: %d samples are accepted, %v", vids, got, err)
		}
	}
	metric := func(n *Node, want string) {
		t.Helper()
		if _, text, err := testkit.Get(n.URL(AdminAddr) + "/metrics"); err != nil || !strings.Contains(text, want+"\n") {
			t.Errorf("%s is not there, %v", want, err)
		}
	}
	t.Run("it fills up", func(t *testing.T) {
		first := startNode(t, c)
		first.awaitReady(t)
		key = gateway(t, operatorOf(t, first))
		post(first, 2, "A", "B", "C")
		testkit.Await(t, "the vehicles are known", func() bool { return first.fleet.Len() == 2 })
		post(first, 2, "A", "B", "C", "D")
		post(first, 0, "C")
		metric(first, "carstate_vehicles_limit 2")
		metric(first, `carstate_samples_refused_total{protocol="http",reason="vehicle_limit"} 4`)
	})
	c.MaxVehicles = 1
	second := startNode(t, c)
	second.awaitReady(t)
	post(second, 2, "A", "B", "C")
}
