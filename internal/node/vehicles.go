package node

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// foldedBytes is the memory of a state with all signals (902, by BenchmarkPackedStates of
	// derive) and its answers; knownBytes is that of the answers alone, on a node that does not fold.
	foldedBytes   = 1000
	knownBytes    = 64
	vehiclesShare = 4 // 1/4 of the memory, for all vehicles
	vidsShare     = 8 // 1/8 of the memory, for the vids of lists of vehicles
	leastVehicles = 100_000
	mostMemory    = 1 << 40
)

// vehicleBound returns 0, no limit, on a node without states, which knows no vehicle.
func (c *Config) vehicleBound() int {
	switch {
	case !c.has(Ingest) || !c.needsStates():
		return 0
	case c.MaxVehicles != 0:
		return c.MaxVehicles
	}
	return max(leastVehicles, int(memory(os.DirFS("/"))/vehiclesShare/c.vehicleBytes()/1000*1000))
}

func (c *Config) vehicleBytes() uint64 {
	if c.has(Derive) {
		return foldedBytes
	}
	return knownBytes
}

func (n *Node) logVehicleBound() {
	switch {
	case !n.config.has(Ingest):
	case n.fleet.Limit() == 0:
		n.config.Log.Info("this node accepts new vehicles without a limit, because it does not follow the states: " +
			"--max-vehicles sets a limit")
	default:
		n.config.Log.Info("new vehicles are refused beyond a limit; known ones stay (--max-vehicles)",
			"vehicles", n.fleet.Limit(),
			"memory", fmt.Sprintf("%d MiB", uint64(n.fleet.Limit())*n.config.vehicleBytes()>>20))
	}
}

func memory(root fs.FS) uint64 {
	least := min(mostMemory, uint64(debug.SetMemoryLimit(-1))) // never negative
	note := func(text string, unit uint64) {
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil {
			least = min(least, n*unit)
		}
	}
	info, _ := fs.ReadFile(root, "proc/meminfo")
	if _, rest, ok := strings.Cut(string(info), "MemTotal:"); ok {
		kib, _, _ := strings.Cut(rest, "kB")
		note(kib, 1024)
	}
	// In a container, the ancestors of its control group may be invisible.
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(line, ":")
		dir, file := "sys/fs/cgroup", "memory.max"
		if controllers != "" { // version 1
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			ok = ok && controllers == "memory"
		}
		for group = path.Clean("/" + group); ok; group = path.Dir(group) {
			limit, _ := fs.ReadFile(root, path.Join(dir, group, file))
			note(string(limit), 1)
			ok = group != "/"
		}
	}
	return least
}
