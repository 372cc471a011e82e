package node

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// The default of --max-vehicles follows from these.
const (
	// storedBytes is the memory that a vehicle costs one machine, the store's part and the garbage
	// included, knownBytes what it costs a node of a cluster, which has the table alone
	// (docs/install.md has the measurement).
	storedBytes = 256
	knownBytes  = 64
	// vehiclesShare is the part of the memory that vehicles may take.
	vehiclesShare = 4
	// vidsShare is the part that the vids of those may take that a node lists.
	vidsShare = 8
	// leastVehicles is the bound of the smallest machine.
	leastVehicles = 100_000
	// mostMemory is more memory than is counted on.
	mostMemory = 1 << 40
)

// vehicleBound is how many vehicles may become known by what this node takes in; 0: no bound. A node
// that takes in and does not follow the states knows no vehicle, and can refuse none.
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

// sayVehicleBound says at the start which bound holds.
func (n *Node) sayVehicleBound() {
	switch {
	case !n.config.has(Ingest):
	case n.maxVehicles.Load() == 0:
		n.config.Log.Info("this node takes in new vehicles without a bound, because it knows none: " +
			"with --max-vehicles it follows them")
	default:
		n.config.Log.Info("new vehicles are refused beyond a bound; those that are known stay (--max-vehicles)",
			"vehicles", n.maxVehicles.Load())
	}
}

// memory is how many bytes this process may use: the machine's, a control group's, GOMEMLIMIT's or
// mostMemory, the least of them.
func memory(root fs.FS) uint64 {
	least := min(mostMemory, uint64(debug.SetMemoryLimit(-1))) // which is never negative
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
	// The group and each that it lies in; a container may see its own as the root.
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, own, ok := strings.Cut(line, ":")
		dir, file := "sys/fs/cgroup", "memory.max" // version 2
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
