package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// A generated client demands the token, and its answers are records with fields.
var generated = map[string]struct{ file, program, script string }{
	"oapi-codegen": {"main.go", `package main

import ("context"; "fmt"; "os")

func main() {
	c, _ := NewClientWithResponses(os.Getenv("CARSTATE_QUERY_URL"))
	query := CarDrivingStateParams{AccessToken: os.Getenv("CARSTATE_TOKEN"), Vid: "SandboxJam"}
	r, err := c.CarDrivingStateWithResponse(context.Background(), &query)
	if err != nil { panic(err) }
	d := r.JSON200.Data
	fmt.Printf("%s %d %s\n", d.Vid, d.Status, d.VehicleRuningState)
}
`, `go mod init hello
		go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -generate types,client -package main \
			-o client.go openapi.json
		go get github.com/oapi-codegen/runtime@v1.9.0; go run .`},
	"openapi-typescript": {"main.ts", `import type { paths } from "./client.js";
type Operation = paths["/api/ic/if_dt_tflow_car_driving_state"]["get"];
const query: Operation["parameters"]["query"] = { access_token: process.env.CARSTATE_TOKEN!, vid: "SandboxJam" };
// @ts-expect-error: the token is required
const without: Operation["parameters"]["query"] = { vid: "SandboxJam" };
const url = process.env.CARSTATE_QUERY_URL + "/api/ic/if_dt_tflow_car_driving_state?" + new URLSearchParams(query);
const { data }: Operation["responses"][200]["content"]["application/json"] = await (await fetch(url)).json();
const status: number = data.status, state: string = data.vehicle_runing_state;
console.log(data.vid, status, state);
`, `$NPM/.bin/openapi-typescript openapi.json -o client.ts; echo '{"type":"module"}' >package.json
		$NPM/.bin/tsc --strict --skipLibCheck --target es2022 --module nodenext --typeRoots $NPM/@types --types node main.ts; node main.js`},
}

func project(t *testing.T, p *process, file, program, script string, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(program), 0o600))
	npm, err := filepath.Abs("../../.cache/npm/node_modules")
	testkit.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Dir = dir
	token := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Ada", "--sandbox"))
	cmd.Env = append(append(os.Environ(), "CARSTATE_TOKEN="+token, "CARSTATE_QUERY_URL="+p.URL(nodeprocess.Query),
		"NPM="+npm, "GOFLAGS=-trimpath", "CGO_ENABLED=0"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the script: got %v, want no error (make setup installs the programs)\n%s", err, out)
	}
	return string(out)
}

func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	for name, g := range generated {
		t.Run(name, func(t *testing.T) {
			out := project(t, p, g.file, g.program, "curl -s $CARSTATE_QUERY_URL/openapi.json -o openapi.json\n"+g.script)
			if !strings.HasSuffix(out, "SandboxJam 1 3\n") {
				t.Errorf("got %s, want SandboxJam 1 3", out)
			}
		})
	}
}
