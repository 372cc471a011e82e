package node

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Constants of the default of --max-vehicles.
const (
	// storedBytes is the memory that one vehicle takes on a single machine, including its part of
	// the store and of garbage. knownBytes is what it takes on a node of a cluster, which has only
	// the fleet table. docs/install.md has the measurement.
	storedBytes = 256
	knownBytes  = 64
	// vehiclesShare divides the memory: vehicles may take a quarter of it.
	vehiclesShare = 4
	// vidsShare divides the memory: the vids that a node lists may take an eighth of it.
	vidsShare = 8
	// leastVehicles is the limit on the smallest machine.
	leastVehicles = 100_000
	// mostMemory is the most memory that is assumed.
	mostMemory = 1 << 40
)

// vehicleBound returns how many vehicles the node's ingest may make known; 0 means no limit. A node
// that ingests and does not follow the states knows no vehicle, so it cannot refuse new ones.
func (c *Config) vehicleBound() int {
	switch {
	case !c.has(Ingest) || !c.needsStates():
		return 0
	case c.MaxVehicles != 0:
		return c.MaxVehicles
	}
	each := uint64(storedBytes)
	if c.Cluster.URLs != "" {
		each = knownBytes
	}
	return max(leastVehicles, int(memory(os.DirFS("/"))/vehiclesShare/each/1000*1000))
}

// logVehicleBound logs, at the start, which limit applies.
func (n *Node) logVehicleBound() {
	switch {
	case !n.config.has(Ingest):
	case n.maxVehicles.Load() == 0:
		n.config.Log.Info("this node accepts new vehicles without a limit, because it does not follow the states: " +
			"--max-vehicles sets a limit")
	default:
		n.config.Log.Info("new vehicles are refused beyond a limit; known ones stay (--max-vehicles)",
			"vehicles", n.maxVehicles.Load())
	}
}

// memory returns how many bytes this process may use: the least of the machine's memory, the limits
// of its control groups, GOMEMLIMIT and mostMemory.
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
	// The process's control group and all its ancestors can set a limit. A container may see its
	// own group as the root.
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, own, ok := strings.Cut(line, ":")
		dir, file := "sys/fs/cgroup", "memory.max" // control groups version 2
		if controllers != "" {
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			ok = ok && controllers == "memory"
		}
		for group := path.Clean("/" + own); ok; group = path.Dir(group) {
			limit, _ := fs.ReadFile(root, path.Join(dir, group, file))
			note(string(limit), 1)
			ok = group != "/"
		}
	}
	return least
}
