package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Machine describes what was measured on, in one line: processor, cores, kernel, Go,
// and how long the disk of a directory takes to make 4 KiB durable.
func Machine(dir string) (string, error) {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		return "", err
	}
	var release strings.Builder
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		release.WriteByte(byte(c))
	}
	sync, err := fsync(dir)
	if err != nil {
		return "", fmt.Errorf("the disk cannot be measured: %w", err)
	}
	return fmt.Sprintf("%s, %s, Linux %s, %s, fsync %s µs", model, plural(runtime.NumCPU(), "core"), kernel(release.String()), runtime.Version(), number(float64(sync.Nanoseconds())/1e3)), nil
}

// kernel is the version without what a distribution or a host adds.
func kernel(release string) string {
	version, _, _ := strings.Cut(release, "-")
	return version
}

// fsync is the median time of writing and syncing 4 KiB.
func fsync(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4<<10)
	took := make([]time.Duration, 101)
	for i := range took {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
