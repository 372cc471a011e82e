package node

import (
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
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
	for g := range controlGroups(root) {
		file := "memory.max"
		if g.version == 1 {
			file = "memory.limit_in_bytes"
		}
		limit, _ := fs.ReadFile(root, path.Join(g.dir, g.name, file))
		note(string(limit), 1)
	}
	return least
}

// controlGroup is a control group of Linux. Its files, such as the memory limit, are in the
// directory dir/name.
type controlGroup struct {
	dir, name string
	version   int
}

// controlGroups yields the process's control group and then all its ancestors, because each of them
// can limit the memory. In a container, the ancestors may be invisible; the container's own group
// then appears as the root group.
func controlGroups(root fs.FS) iter.Seq[controlGroup] {
	return func(yield func(controlGroup) bool) {
		groups, _ := fs.ReadFile(root, "proc/self/cgroup")
		for line := range strings.Lines(string(groups)) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
			controllers, own, ok := strings.Cut(line, ":")
			g := controlGroup{"sys/fs/cgroup", path.Clean("/" + own), 2}
			if controllers != "" {
				g.dir, g.version = "sys/fs/cgroup/memory", 1
				ok = ok && controllers == "memory"
			}
			for ; ok; g.name = path.Dir(g.name) {
				if !yield(g) {
					return
				}
				ok = g.name != "/"
			}
		}
	}
}

// logUnclean logs that the last process ended without closing the engine, with the possible causes.
// It names the control group if the kernel has killed a process of it, or of an ancestor, for lack
// of memory. In an ancestor, that may be another service; and a group that a supervisor has created
// again has no count of the kill.
func logUnclean(log *slog.Logger, root fs.FS) {
	var kills []any
	own, isOwn := "", false
	for g := range controlGroups(root) {
		if g.version != 2 {
			continue
		}
		if own == "" {
			own = g.name
		}
		text, _ := fs.ReadFile(root, path.Join(g.dir, g.name, "memory.events"))
		_, rest, _ := strings.Cut("\n"+string(text), "\noom_kill ")
		n, _, _ := strings.Cut(rest, "\n")
		if count, err := strconv.Atoi(n); err == nil && count > 0 {
			kills = []any{"oom_kill", count, "group", g.name, "memory_limit", fmt.Sprintf("%d MiB", memory(root)>>20)}
			isOwn = g.name == own
			break
		}
	}
	if !isOwn {
		log.Warn("the last process did not end in order: it was killed (by hand, for lack of memory, by the watchdog), "+
			"it failed, it did not end in time, or the machine lost power; its last lines and dmesg say more", kills...)
		return
	}
	log.Warn("the last process did not end in order, and the kernel has ended processes of its control group for lack "+
		"of memory: allow it more, or lower --max-vehicles or --store-memory-mib", kills...)
}
