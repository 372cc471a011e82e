package node

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Constants from which the default of --max-vehicles is computed.
const (
	// storedBytes is the memory that one vehicle takes on a single machine, including its part
	// of the store and of garbage. knownBytes is the memory that one vehicle takes on a node of
	// a cluster, which has only the table of the latest answers. docs/install.md has the
	// measurement.
	storedBytes = 256
	knownBytes  = 64
	// vehiclesShare is the divisor for the memory of all vehicles: they may take a quarter of the
	// memory.
	vehiclesShare = 4
	// vidsShare is the divisor for the memory of the vids that a node lists: they may take an
	// eighth of the memory.
	vidsShare = 8
	// leastVehicles is the lowest default, which applies on the smallest machine.
	leastVehicles = 100_000
	// mostMemory is the upper limit of the result of the function memory, in bytes.
	mostMemory = 1 << 40
)

// vehicleBound returns how many vehicles this node may know before it refuses telemetry of new
// ones; 0 means no limit. There is no limit on a node that does not ingest. Nor is there on an
// ingest node that does not follow the states of vehicles: it knows no vehicle, so it cannot tell
// which are new.
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

// logVehicleBound logs, at the start, beyond how many vehicles new ones are refused.
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

// memory returns the number of bytes that this process may use. It is the smallest of the machine's
// memory, the limits of the process's control groups, GOMEMLIMIT and mostMemory.
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
