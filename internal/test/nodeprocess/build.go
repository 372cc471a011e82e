package nodeprocess

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Build builds carstate of the repository at root or, if tests is a package such as
// "./internal/query", its tests. With the flags of `make build`, go uses what it has compiled.
func Build(ctx context.Context, root, tests, to string, flags ...string) error {
	args := []string{"build"}
	if tests != "" {
		args = []string{"test", "-c"}
	}
	args = append(append(args, "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to), flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, cmp.Or(tests, "./cmd/carstate"))...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto", "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: run it in a directory of the repository\n%s", err, out)
	}
	return nil
}
