package nodeprocess

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Build builds a program into the file at the absolute path to. If tests is "",
// the program is carstate, built as `make build` does. Otherwise, tests is the directory of a
// package relative to root, such as "./cmd/carstate", and Build builds the tests of that package.
// root is the root of the repository, and flags are further flags of the go command.
// With the flags of `make build`, go uses the packages that it has compiled before.
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
