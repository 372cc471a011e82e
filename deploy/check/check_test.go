package check_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// A warning is an error.
func dockerfile(t *testing.T) []instructions.Stage {
	t.Helper()
	file, err := os.Open(container + "/Dockerfile")
	if err != nil {
		t.Fatalf("the Dockerfile: got %v, want a file", err)
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		t.Fatalf("BuildKit's parser: got %v, want no error", err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("BuildKit's parser: got the warning %s, want none", w.Short)
	}
	stages, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, _ []parser.Range) {
			t.Errorf("BuildKit's linter: got the warning %s: %s, want none", rule, message)
		},
	}))
	if err != nil {
		t.Fatalf("the instructions: got %v, want no error", err)
	}
	return stages
}

// Images are named by digest, and contain only the program, not run as root.
func TestDockerfile(t *testing.T) {
	stages := dockerfile(t)
	named := make(map[string]bool)
	for _, stage := range stages {
		if !named[stage.BaseName] && stage.BaseName != "scratch" && !strings.Contains(stage.BaseName, "@sha256:") {
			t.Errorf("a base image: got %s, want it named by its digest", stage.BaseName)
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
				t.Error("the image from scratch: got RUN, want none, because nothing can run in it")
			}
		}
		if stage.BaseName != "scratch" || entrypoint != want || user == "" || strings.HasPrefix(user, "0") ||
			strings.HasPrefix(user, "root") {
			t.Errorf("got base %s, %q by user %q, want scratch, %s, no root", stage.BaseName, entrypoint, user, want)
		}
	}
	if len(images) > 0 || stages[len(stages)-1].Name != "" {
		t.Errorf("the images: got none of %v, or carstate not last, want all", images)
	}
}

// Each program is static, too.
func checkCopies(t *testing.T, stage instructions.Stage) {
	for _, c := range stage.Commands {
		if run, ok := c.(*instructions.RunCommand); ok {
			if line := strings.Join(run.CmdLine, " "); strings.Contains(line, "go build") && !strings.Contains(line,
				"CGO_ENABLED=0") {
				t.Errorf("%s: got %s, want a static program", stage.Name, line)
			}
		}
		if cp, ok := c.(*instructions.CopyCommand); ok && cp.From == "" {
			for _, source := range cp.SourcePaths {
				if _, err := os.Stat(filepath.Join(top, source)); err != nil {
					t.Errorf("COPY: got %v, want %s", err, source)
				}
			}
		}
	}
}

func TestDockerignore_AdmitsOnlyTheBuild(t *testing.T) {
	text, err := os.ReadFile(container + "/Dockerfile.dockerignore")
	if err != nil {
		t.Fatalf("Dockerfile.dockerignore: got %v, want a file", err)
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			if _, err := os.Stat(filepath.Join(top, name)); err != nil {
				t.Errorf("Dockerfile.dockerignore: got %v, want what it admits", err)
			}
		}
	}
	if !strings.Contains(string(text), "\n*\n") {
		t.Errorf("Dockerfile.dockerignore: got\n%s\nwant a line *", text)
	}
}

// env is NAME=VALUE, as for `docker compose`.
func compose(t *testing.T, file string, env ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(container, file)},
		cli.WithEnv(env), cli.WithWorkingDirectory(container), cli.WithInterpolation(true), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatalf("%s: got %v, want no error", file, err)
	}
	return o.LoadProject(t.Context())
}

// No service has more rights than it needs, and carstate publishes on loopback only.
func checkServices(t *testing.T, p *types.Project) {
	t.Helper()
	for name, s := range p.Services {
		if !s.ReadOnly || s.Privileged || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			s.Restart != types.RestartPolicyUnlessStopped {
			t.Errorf("%s: got more rights than it needs, or no restart, want neither", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: got %s opened at %q, want 127.0.0.1", name, port.Published, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: got %v, want %s to mount", name, err, v.Source)
			} else if _, ok := p.Volumes[v.Source]; v.Type == types.VolumeTypeVolume && !ok {
				t.Errorf("%s: got no volume %s, want one", name, v.Source)
			}
		}
	}
	carstate := p.Services["carstate"]
	if h := carstate.HealthCheck; h == nil || !slices.Equal(h.Test, []string{"CMD", "/carstate", "health"}) ||
		carstate.MemLimit == 0 {
		t.Errorf("carstate: got health check %+v, memory limit %d, want health, a limit", h, carstate.MemLimit)
	}
	if _, err := os.Stat(filepath.Join(carstate.Build.Context, carstate.Build.Dockerfile)); err != nil {
		t.Errorf("the Dockerfile of carstate: got %v, want a file", err)
	}
}

// Without NATS_PASSWORD the file is refused.
func TestCompose_ThreeServers(t *testing.T) {
	if _, err := compose(t, "compose.yaml"); err == nil || !strings.Contains(err.Error(), "NATS_PASSWORD") {
		t.Errorf("without a password: got %v, want that NATS_PASSWORD is required", err)
	}
	p, err := compose(t, "compose.yaml", "NATS_PASSWORD=inTheTestOnly")
	if err != nil {
		t.Fatalf("compose.yaml: got %v, want no error", err)
	}
	if names := slices.Sorted(maps.Keys(p.Services)); !slices.Equal(names,
		[]string{"carstate", "nats-1", "nats-2", "nats-3"}) {
		t.Fatalf("the services: got %q, want carstate and nats-1 to 3", names)
	}
	checkServices(t, p)
	for name, s := range p.Services {
		if strings.HasPrefix(name, "nats-") {
			if len(s.Ports) > 0 || *s.Environment["NATS_ROUTE_3"] != "nats-route://route:inTheTestOnly@nats-3:6222" {
				t.Errorf("%s: got ports %v, %s, want none, a password", name, s.Ports, *s.Environment["NATS_ROUTE_3"])
			}
			if own := s.Environment["NATS_NAME"]; own == nil || *own != name ||
				!slices.Equal(s.Command, []string{"--config", "/etc/nats/nats.conf"}) {
				t.Errorf("%s: got NATS_NAME %v, command %q, want %s, nats.conf", name, own, s.Command, name)
			}
			if s.Build == nil || s.Build.Target != "nats" {
				t.Errorf("%s: got no build of nats, want its image from the source that go.sum names", name)
			}
			if _, outside := s.Networks["outside"]; outside {
				t.Errorf("%s: got the outer network, want the inner one alone", name)
			}
		}
	}
	carstate := p.Services["carstate"]
	for i := range 3 {
		want := "nats://carstate:inTheTestOnly@nats-" + string(rune('1'+i)) + ":4222"
		if !strings.Contains(*carstate.Environment["CARSTATE_NATS"], want) {
			t.Errorf("CARSTATE_NATS: got %s, want %s in it", *carstate.Environment["CARSTATE_NATS"], want)
		}
	}
}

// The steps of the Dockerfile run without a container engine.
func TestImage_Starts(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	p, err := compose(t, "one-node.yaml")
	if err != nil {
		t.Fatalf("one-node.yaml: got %v, want no error", err)
	}
	checkServices(t, p)
	root, script := t.TempDir(), "cd ../..\n"
	stages, out := dockerfile(t), strings.NewReplacer("/out", "$ROOT/out")
	for _, c := range slices.Concat(stages[0].Commands, stages[len(stages)-1].Commands) {
		switch c := c.(type) {
		case *instructions.RunCommand:
			script += out.Replace(strings.Join(c.CmdLine, " ")) + "\n"
		case *instructions.CopyCommand:
			if to := "$ROOT" + c.DestPath; c.From == "build" {
				script += "mkdir -p $(dirname " + to + "); cp -r " + out.Replace(c.SourcePaths[0]) + " " + to + "\n"
			}
		}
	}
	run := "env -i CARSTATE_DATA_DIR=/data"
	for name, value := range p.Services["carstate"].Environment {
		run += " " + name + "=" + *value
	}
	run += " $(command -v chroot) --userspec=65532:65532 $ROOT /carstate "
	script += "chmod 755 $ROOT; chown 65532:65532 $ROOT/data; ip link set lo up\n" + run + "serve & trap 'kill $!; wait' EXIT\n" +
		"for i in {1..300}; do " + run + "health && break; sleep .2; done\ntoken=$(" + run + "token issue --developer Ada --sandbox)\n" +
		"curl -s \"http://127.0.0.1:8080/api/ic/if_dt_tflow_car_driving_state?vid=SandboxJam&access_token=$token\"\n"
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "bash", "-ec", script)
	cmd.Env = append(os.Environ(), "ROOT="+root, "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH, "GOWORK=", "VERSION=v0", "COMMIT=0")
	if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), `"vehicle_runing_state":"3"`) {
		t.Errorf("got %v, want an answer (run the test as root):\n%s", err, said)
	}
}
