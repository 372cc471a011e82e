package nodeprocess

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Build builds carstate as `make build` does, or the tests of a package, into the file to. With the
// same flags, go uses the packages that it has compiled before. The parameter root is the root of
// the repository, and the path to must not be relative.
func Build(ctx context.Context, root, tests, to string, flags ...string) error {
	args := []string{"build"}
	if tests != "" {
		args = []string{"test", "-c"}
	}
	args = append(append(args, "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to), flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, cmp.Or(tests, "./cmd/carstate"))...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: run it in a directory of the repository\n%s", err, out)
	}
	return nil
}
