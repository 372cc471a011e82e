package check

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const (
	top       = "../.."
	container = "../docker"
)

// TestDockerfile checks that BuildKit's parser and linter find no fault in the Dockerfile, that the
// images that it builds on are named by their digests, and that each of its two images (carstate
// and the NATS server) contains only the program and no system, and does not run the program as
// root.
func TestDockerfile(t *testing.T) {
	file, err := os.Open(container + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("BuildKit's parser: %s", w.Short)
	}
	stages, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, _ []parser.Range) {
			t.Errorf("BuildKit's linter: %s: %s", rule, message)
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, stage := range stages {
		if !named[stage.BaseName] && stage.BaseName != "scratch" && !strings.Contains(stage.BaseName, "@sha256:") {
			t.Errorf("the image %s is not named by its digest", stage.BaseName)
		}
		named[stage.Name] = true
		checkCopies(t, stage)
	}
	images := map[string]string{"nats": "/nats-server", "": "/carstate"}
	for _, stage := range stages {
		want, ok := images[stage.Name]
		if !ok {
			continue
		}
		delete(images, stage.Name)
		var user, entrypoint string
		for _, c := range stage.Commands {
			switch c := c.(type) {
			case *instructions.UserCommand:
				user = c.User
			case *instructions.EntrypointCommand:
				entrypoint = strings.Join(c.CmdLine, " ")
			case *instructions.RunCommand:
				t.Error("nothing can run in an image from scratch")
			}
		}
		if stage.BaseName != "scratch" || entrypoint != want || user == "" || strings.HasPrefix(user, "0") ||
			strings.HasPrefix(user, "root") {
			t.Errorf("%s: base %s, entry point %q, user %q", want, stage.BaseName, entrypoint, user)
		}
	}
	if len(images) > 0 || stages[len(stages)-1].Name != "" {
		t.Errorf("the images %v are missing, or carstate is not the last", images)
	}
}

// checkCopies checks that the files exist that a stage copies out of the repository, and that each
// program it builds is static.
func checkCopies(t *testing.T, stage instructions.Stage) {
	for _, c := range stage.Commands {
		if run, ok := c.(*instructions.RunCommand); ok {
			if line := strings.Join(run.CmdLine, " "); strings.Contains(line, "go build") && !strings.Contains(line,
				"CGO_ENABLED=0") {
				t.Errorf("%s: not a static program: %s", stage.Name, line)
			}
		}
		if cp, ok := c.(*instructions.CopyCommand); ok && cp.From == "" {
			for _, source := range cp.SourcePaths {
				if _, err := os.Stat(filepath.Join(top, source)); err != nil {
					t.Errorf("COPY: %v", err)
				}
			}
		}
	}
}

// TestDockerignore_AdmitsOnlyTheBuild checks that every file that .dockerignore admits exists, and
// that it leaves out all others.
func TestDockerignore_AdmitsOnlyTheBuild(t *testing.T) {
	text, err := os.ReadFile(container + "/Dockerfile.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			if _, err := os.Stat(filepath.Join(top, name)); err != nil {
				t.Error(err)
			}
		}
	}
	if !strings.Contains(string(text), "\n*\n") {
		t.Error("not everything else is left out")
	}
}

// compose loads compose.yaml as `docker compose` does, with env (NAME=VALUE) as the environment.
func compose(t *testing.T, env ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{container + "/compose.yaml"},
		cli.WithEnv(env), cli.WithWorkingDirectory(container), cli.WithInterpolation(true), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(t.Context())
}

// TestCompose_ThreeServers checks that there are three NATS servers with the configuration in
// deploy/nats, that none of them is reachable from outside, and that carstate uses all three and
// publishes its ports on loopback only. No service may have more rights than it needs, and without
// NATS_PASSWORD the file must be refused.
func TestCompose_ThreeServers(t *testing.T) {
	if _, err := compose(t); err == nil || !strings.Contains(err.Error(), "NATS_PASSWORD") {
		t.Errorf("without a password: %v", err)
	}
	p, err := compose(t, "NATS_PASSWORD=inTheTestOnly")
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(p.Services)); !slices.Equal(names,
		[]string{"carstate", "nats-1", "nats-2", "nats-3"}) {
		t.Fatalf("services %q", names)
	}
	for name, s := range p.Services {
		if !s.ReadOnly || s.Privileged || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			s.Restart != types.RestartPolicyUnlessStopped {
			t.Errorf("%s may do more than it needs, or stays down", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s opens %s to everybody", name, port.Published)
			}
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			} else if _, ok := p.Volumes[v.Source]; v.Type == types.VolumeTypeVolume && !ok {
				t.Errorf("%s: there is no volume %s", name, v.Source)
			}
		}
		if strings.HasPrefix(name, "nats-") {
			if len(s.Ports) > 0 || *s.Environment["NATS_ROUTE_3"] != "nats-route://route:inTheTestOnly@nats-3:6222" {
				t.Errorf("%s: ports %v, routes %s", name, s.Ports, *s.Environment["NATS_ROUTE_3"])
			}
			if own := s.Environment["NATS_NAME"]; own == nil || *own != name ||
				!slices.Equal(s.Command, []string{"--config", "/etc/nats/nats.conf"}) {
				t.Errorf("%s: NATS_NAME %v, command %q", name, own, s.Command)
			}
			if s.Build == nil || s.Build.Target != "nats" {
				t.Errorf("%s: its image is not built from the source that go.sum names", name)
			}
			if _, outside := s.Networks["outside"]; outside {
				t.Errorf("%s is on the outer network", name)
			}
		}
	}
	carstate := p.Services["carstate"]
	for i := range 3 {
		want := "nats://carstate:inTheTestOnly@nats-" + string(rune('1'+i)) + ":4222"
		if !strings.Contains(*carstate.Environment["CARSTATE_NATS"], want) {
			t.Errorf("carstate does not know %s", want)
		}
	}
	if h := carstate.HealthCheck; h == nil || !slices.Equal(h.Test, []string{"CMD", "/carstate", "health"}) ||
		carstate.MemLimit == 0 {
		t.Errorf("health check %+v, memory limit %d", h, carstate.MemLimit)
	}
	if _, err := os.Stat(filepath.Join(carstate.Build.Context, carstate.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
}
