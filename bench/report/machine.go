package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Machine describes this machine in one line, with the time in which the disk of dir syncs 4 KiB.
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
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	kernel, _, _ := strings.Cut(string(release), "-") // without the suffix of a distribution or a host
	syncs, err := Fsyncs(dir, 101)
	if err != nil {
		return "", fmt.Errorf("cannot measure the disk: %w", err)
	}
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, fsync %s µs", model, runtime.NumCPU(),
		strings.TrimSpace(kernel), runtime.Version(), number(1e3*Median(syncs))), nil
}

// Fsyncs returns how long each of a number of synced writes of 4 KiB took, in milliseconds.
func Fsyncs(dir string, times int) (took []float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4<<10)
	for range times {
		begin := time.Now()
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin).Seconds()*1e3)
	}
	return took, nil
}

// DirSize returns the size of all files of a directory, in bytes. Files that vanish during
// the walk are left out.
func DirSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return size, err
}
