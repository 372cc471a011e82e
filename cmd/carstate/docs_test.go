package main_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

const acceptedOne = `{"accepted":1,"rejected":[]}` + "\n"

type recipes struct {
	*process
	dir         string
	source, key string // of the present recipe
	broker      string // of mosquitto, once it is a bridge
	ran         map[string]int
}

func TestConnectExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/connect.md")
	testkit.NoError(t, err)
	r := &recipes{process: start(t, t.TempDir()), dir: t.TempDir(), ran: map[string]int{}}
	blocks, formatOf := regexp.MustCompile("(?s)```(\\w+)\n(.*?)```"), regexp.MustCompile(`--format (\w+)`)
	for i, recipe := range regexp.MustCompile(`(?m)^(\*\*|## )`).Split(string(text), -1) {
		for n, m := range blocks.FindAllStringSubmatch(recipe, -1) {
			if n == 0 {
				r.add(t, fmt.Sprint("gateway-", i), formatOf.FindStringSubmatch(recipe))
			}
			r.ran[m[1]]++
			r.run(t, m[1], m[2])
		}
	}
	for _, line := range regexp.MustCompile("(?m)^carstate pull .*").FindAllString(string(text), -1) {
		r.ran["pull"]++
		r.pull(t, line)
	}
	if got, want := fmt.Sprint(r.ran), "map[conf:1 console:5 json:1 pull:4 sh:1 text:1 toml:1 yaml:2]"; got != want {
		t.Errorf("got examples %s, want %s", got, want)
	}
}

func (r *recipes) add(t *testing.T, name string, format []string) {
	args := []string{"source", "add", name, "--vehicles", "all"}
	if format != nil {
		args = append(args, "--format", format[1])
	}
	r.source, r.key = name, strings.TrimSpace(r.carstate(t, args...))
}

func (r *recipes) run(t *testing.T, kind, text string) {
	switch kind {
	case "sh":
		r.shell(t, acceptedOne, text)
	case "console":
		command, rest, _ := strings.Cut(text, "\n")
		message, want, _ := strings.Cut(rest, "=> ")
		r.try(t, strings.Fields(command)[2:], message, want)
		r.send(t, command, strings.TrimSpace(message))
	case "conf":
		r.bridge(t, text)
	case "json":
		r.nodeRED(t, text)
	case "yaml":
		if payload := regexp.MustCompile(`payload: '(.*)'`).FindStringSubmatch(text); payload != nil {
			now := time.Now().UTC().Format(time.RFC3339)
			body := regexp.MustCompile(`\{\{ utcnow.*?\}\}`).ReplaceAllString(payload[1], now)
			r.post(t, strings.ReplaceAll(body, "{{ speed }}", "31"))
			return
		}
		_, err := format.Parse(text)
		testkit.NoError(t, err)
		testkit.NoError(t, os.WriteFile(filepath.Join(r.dir, "mine.yaml"), []byte(text), 0o600))
	}
}

func (r *recipes) shell(t *testing.T, want, command string) {
	c := r.command("sh", "-e", "-c", strings.ReplaceAll(command, "http://127.0.0.1:8081", r.URL(nodeprocess.Ingest)))
	if out, err := c.Output(); err != nil || string(out) != want {
		t.Errorf("%s: got %q, %v, want %q", command, out, err, want)
	}
}

func (r *recipes) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Dir, c.Env = r.dir, append(os.Environ(), "CARSTATE_KEY="+r.key)
	return c
}

func (r *recipes) try(t *testing.T, args []string, message, want string) {
	c := exec.CommandContext(t.Context(), plain, args...)
	c.Stdin = strings.NewReader(message)
	out, err := c.Output()
	got := string(out)
	if strings.Contains(want, "NOW") {
		got = regexp.MustCompile(`"time":\d{13}`).ReplaceAllString(got, `"time":NOW`)
	}
	if err != nil || got != want {
		t.Errorf("%q: got %s, want %s (%v)", args, got, want, err)
	}
}

// send uses MQTT if the command names a topic, the address if the message is a form, and else the
// body.
func (r *recipes) send(t *testing.T, command, message string) {
	now := time.Now().UTC()
	message = strings.NewReplacer("1795860001", fmt.Sprint(now.Unix()), "2026-11-28T10:00:01",
		now.Format("2006-01-02T15:04:05")).Replace(message)
	_, topic, ok := strings.Cut(command, "--topic ")
	switch {
	case ok:
		r.publish(t, r.Address(nodeprocess.MQTT), topic, message, "-u", r.source, "-P", r.key)
	case strings.HasPrefix(message, "id="):
		r.shell(t, "OK!", "curl -sS 'http://127.0.0.1:8081/v1/telemetry?key="+r.key+"&"+message+"'")
	default:
		r.post(t, message)
	}
}

func (r *recipes) post(t *testing.T, body string) {
	r.shell(t, acceptedOne, `curl -sS -H "Authorization: Bearer $CARSTATE_KEY" http://127.0.0.1:8081/v1/telemetry --json '`+
		body+"'")
}

// With MQTT 5, mosquitto_pub prints the reason of a refusal.
func (r *recipes) publish(t *testing.T, addr, topic, message string, flags ...string) {
	host, port, _ := net.SplitHostPort(addr)
	args := append([]string{"-h", host, "-p", port, "-V", "mqttv5", "-q", "1", "-t", topic, "-m", message}, flags...)
	if out, err := r.command("mosquitto_pub", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: got %s, %v, want no message", topic, out, err)
	}
}

func (r *recipes) starts(t *testing.T, c *exec.Cmd, send func()) {
	testkit.NoError(t, c.Start())
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	testkit.Await(t, c.Path+" sends a sample", func() bool {
		send()
		var s struct{ Seen struct{ Accepted int } }
		testkit.NoError(t, json.Unmarshal([]byte(r.carstate(t, "source", "show", r.source, "--json")), &s))
		return s.Seen.Accepted > 0
	})
}

func (r *recipes) bridge(t *testing.T, config string) {
	l := testkit.Listen(t)
	r.broker = l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(r.broker)
	config = fmt.Sprintf("user root\nlistener %s %s\nallow_anonymous true\n%s", port, host, strings.NewReplacer(
		"127.0.0.1:1883", r.Address(nodeprocess.MQTT), "gateway-1", r.source, "KEY", r.key).Replace(config))
	testkit.NoError(t, os.WriteFile(filepath.Join(r.dir, "conf"), []byte(config), 0o600))
	r.starts(t, r.command("mosquitto", "-c", "conf"), func() {
		if c, err := net.Dial("tcp", r.broker); err == nil {
			c.Close()
			r.publish(t, r.broker, "vehicles/CarX/telemetry",
				fmt.Sprintf(`{"time":%d,"signals":{"Vehicle.Speed":31}}`, time.Now().UnixMilli()))
		}
	})
}

func (r *recipes) nodeRED(t *testing.T, flow string) {
	flow = strings.ReplaceAll(flow, "http://127.0.0.1:8081", r.URL(nodeprocess.Ingest))
	testkit.NoError(t, os.WriteFile(filepath.Join(r.dir, "flow.json"), []byte(flow), 0o600))
	program, err := filepath.Abs("../../.cache/npm/node_modules/.bin/node-red") // make setup installs it
	testkit.NoError(t, err)
	r.starts(t, r.command(program, "-u", ".", "-D", "httpAdminRoot=false", "-D", "httpNodeRoot=false", "flow.json"),
		func() {})
}

func (r *recipes) pull(t *testing.T, line string) {
	args := strings.Fields(strings.NewReplacer("'", "", "mqtt://broker", "mqtt://"+r.broker).Replace(line))
	args = append(args[1:], "--ingest-url", r.URL(nodeprocess.Ingest))
	if !strings.Contains(line, "mqtt://") {
		r.key = ""
		out, err := r.command(plain, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "set CARSTATE_KEY") {
			t.Errorf("%s: got %s, %v, want that CARSTATE_KEY is to be set", line, out, err)
		}
		return
	}
	r.add(t, "puller", nil)
	r.starts(t, r.command(plain, args...), func() {
		r.publish(t, r.broker, "owntracks/jane/phone",
			fmt.Sprintf(`{"_type":"location","tst":%d,"vel":31}`, time.Now().Unix()))
	})
}

func TestIngestPage_Example(t *testing.T) {
	t.Parallel()
	r := &recipes{process: start(t, t.TempDir()), dir: t.TempDir()}
	r.add(t, "gateway-1", nil)
	page, err := r.command("curl", "-sS", r.URL(nodeprocess.Ingest)).Output()
	testkit.NoError(t, err)
	_, example, ok := strings.Cut(string(page), "CARSTATE_KEY=css_…\n")
	example, _, _ = strings.Cut(example, "</code>")
	if !ok {
		t.Fatalf("the page: got no command, want one:\n%s", page)
	}
	r.shell(t, acceptedOne, html.UnescapeString(example))
}

// All but one, whose library the test machine cannot install.
func TestTelemetryExamples(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	key := p.addSource(t, "gateway-1")
	text, err := os.ReadFile("../../docs/telemetry.md")
	testkit.NoError(t, err)
	host, port, _ := strings.Cut(p.Address(nodeprocess.MQTT), ":")
	here := strings.NewReplacer("http://127.0.0.1:8081", p.URL(nodeprocess.Ingest), "-h 127.0.0.1 -p 1883",
		"-h "+host+" -p "+port, "export CARSTATE_KEY=css_…", "")
	ran := 0
	for _, m := range regexp.MustCompile("(?s)```(sh|python|go)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[2], "paho") {
			continue
		}
		ran++
		file := filepath.Join(t.TempDir(), "example."+m[1])
		testkit.NoError(t, os.WriteFile(file, []byte(here.Replace(m[2])), 0o600))
		args := map[string][]string{"sh": {"sh", "-e"}, "python": {"python3"}, "go": {"go", "run"}}[m[1]]
		c := exec.CommandContext(t.Context(), args[0], append(args[1:], file)...)
		c.Env = append(os.Environ(), "CARSTATE_KEY="+key)
		out, err := c.CombinedOutput()
		accepted := regexp.MustCompile(`.accepted.: ?1,`).Match(out)
		if quiet := strings.Contains(m[2], "mosquitto_pub"); err != nil || accepted == quiet || quiet && len(out) > 0 {
			t.Errorf("got %v, %s, want 1 accepted, or silence of mosquitto_pub, by\n%s", err, out, m[2])
		}
	}
	if ran != 4 {
		t.Errorf("the examples that ran: got %d, want 4", ran)
	}
}
