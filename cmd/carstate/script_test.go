package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"example.org/carstate/internal/test/nodeprocess"
)

// TestScripts checks the commands of carstate with the scripts in testdata. A script contains what
// a user types and the expected output. Besides the usual commands of testscript, a script can use
//
//	serve DIR [FLAG…]     start `carstate serve` on free ports; later commands find it
//	stop                  end it with SIGTERM, within 5 s
//	busy                  occupy a port and put its address into $BUSY
//	get URL               send an HTTP GET and print status, headers and body;
//	                      $QUERY, $INGEST and $ADMIN are base URLs
//	eventually URL TEXT   repeat get until TEXT is in the response
//	folded VID TOKEN      wait until a drive that was replayed without --live is folded to its end
//	oneline               the last command's stderr is one line, or two, the second with "Try:"
//	let NAME              put the last command's stdout into $NAME
func TestScripts(t *testing.T) {
	startsPrograms(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(plain)+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Values[processKey] = new(*process)
			drive, err := filepath.Abs(demoDrive)
			env.Setenv("DRIVE", drive)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":      scriptServe,
			"stop":       scriptStop,
			"busy":       scriptBusy,
			"get":        scriptGet,
			"eventually": scriptEventually,
			"folded":     scriptFolded,
			"oneline":    scriptOneLine,
			"let":        scriptLet,
		},
	})
}

func scriptServe(ts *testscript.TestScript, _ bool, args []string) {
	p, err := startProgram(plain, ts.MkAbs(args[0]), []string{"PATH=" + ts.Getenv("PATH")}, args[1:]...)
	ts.Check(err)
	ts.Defer(p.Kill)
	for _, e := range p.env() {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, "CARSTATE_") {
			ts.Setenv(name, value)
		}
	}
	ts.Setenv("MQTT", p.Address(nodeprocess.MQTT))
	_, port, _ := net.SplitHostPort(p.Address(nodeprocess.MQTT))
	ts.Setenv("MQTT_PORT", port)
	for _, name := range []string{"query", "ingest", "admin"} {
		ts.Setenv(strings.ToUpper(name), "http://"+p.Address(name+"-addr"))
	}
	*ts.Value(processKey).(**process) = p
}

const processKey = "process"

func scriptStop(ts *testscript.TestScript, _ bool, _ []string) {
	p := *ts.Value(processKey).(**process)
	took, err := p.end()
	if err != nil {
		ts.Fatalf("the end: got %v, want no error:\n%s", err, p.log)
	}
	if took > 5*time.Second {
		ts.Fatalf("the end: got it after %s, want 5s at most", took)
	}
}

func scriptBusy(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv("BUSY", l.Addr().String())
}

func fetch(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP %d\n", resp.StatusCode)
	resp.Header.Write(&b)
	fmt.Fprintf(&b, "\n%s\n", body)
	return b.String(), err
}

func scriptGet(ts *testscript.TestScript, _ bool, args []string) {
	text, err := fetch(args[0])
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), text)
}

func scriptEventually(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(until(30*time.Second, func() error {
		text, err := fetch(args[0])
		if err == nil && !strings.Contains(text, args[1]) {
			err = fmt.Errorf("%q is not in:\n%s", args[1], text)
		}
		return err
	}))
}

func scriptFolded(ts *testscript.TestScript, _ bool, args []string) {
	p := *ts.Value(processKey).(**process)
	ts.Check(until(30*time.Second, func() error { return p.folded(args[1], args[0], p.began) }))
}

func scriptOneLine(ts *testscript.TestScript, _ bool, _ []string) {
	text := ts.ReadFile("stderr")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) == 2 && strings.HasPrefix(lines[1], "Try: carstate") {
		lines = lines[:1]
	}
	if len(lines) != 1 || !regexp.MustCompile(`^carstate: .{20,}`).MatchString(lines[0]) {
		ts.Fatalf("stderr: got\n%s\nwant one clear line", text)
	}
}

func scriptLet(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}
