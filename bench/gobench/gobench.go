// Package gobench runs the Go benchmarks of carstate's packages.
package gobench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

type Results map[string]map[string][]float64

// The current directory of Run must be bench.
func Run(ctx context.Context, pkg, pattern string, rounds int) (Results, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-count", strconv.Itoa(rounds),
		"-timeout", "1h", "./"+pkg)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Env = "..", &stderr, append(cmd.Environ(), "GOWORK=") // which bench is not in
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s of %s: %w\n%s%s", pattern, pkg, err, out, &stderr)
	}
	results := parse(string(out))
	if len(results) == 0 {
		return nil, fmt.Errorf("%s has no benchmark %s", pkg, pattern)
	}
	return results, nil
}

func Version(ctx context.Context) string {
	described, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(described))
}

func parse(out string) Results {
	results := make(Results)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			name = name[:i]
		}
		if results[name] == nil {
			results[name] = make(map[string][]float64)
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				results[name][fields[i+1]] = append(results[name][fields[i+1]], v)
			}
		}
	}
	return results
}
