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

// Constants from which the default of --max-vehicles is computed.
const (
	// foldedBytes is the memory that one vehicle takes on a node that folds: its state with all
	// signals (902, measured by BenchmarkPackedStates of derive) and its answers. knownBytes is the
	// memory that it takes on any other node, which has only the table of the latest answers.
	foldedBytes = 1000
	knownBytes  = 64
	// All vehicles together may take 1/vehiclesShare of the memory: a quarter.
	vehiclesShare = 4
	// The vids that a node keeps for its lists of vehicles may take 1/vidsShare of the memory.
	vidsShare = 8
	// leastVehicles is the lowest default of --max-vehicles, for machines with little memory.
	leastVehicles = 100_000
	// mostMemory is the most that memory returns, in bytes.
	mostMemory = 1 << 40
)

// vehicleBound returns the maximum number of vehicles that this node may know; 0: no limit. Without
// MaxVehicles, it follows from the memory. A node that does not ingest has no limit, nor one that
// does not follow states, because it cannot tell which vehicles are new.
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

// logVehicleBound logs the maximum number of known vehicles of a node that ingests, or that it has
// none and which flag sets it.
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
	// The process's control group and all its ancestors can limit the memory. In a container, the
	// ancestors may be invisible; the container's own group then appears as the root group.
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
