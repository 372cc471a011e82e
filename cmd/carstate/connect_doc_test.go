package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/testkit"
)

const acceptedOne = `{"accepted":1,"rejected":[]}` + "\n"

// connectDoc runs the recipes of docs/connect.md.
type connectDoc struct {
	*process
	dir       string
	mapping   string // the file of the mapping in the document
	broker    string // the address of a mosquitto that is a bridge
	source    string
	key       string
	ran       map[string]int
	sinceThen *strings.Replacer // gives the messages the present time
}

// TestConnectExamples runs the commands of docs/connect.md, sends its messages as their senders do,
// and reads its mapping.
func TestConnectExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/connect.md")
	testkit.NoError(t, err)
	now := time.Now().UTC()
	d := &connectDoc{process: start(t, t.TempDir()), dir: t.TempDir(), ran: map[string]int{}, sinceThen: strings.NewReplacer(
		"1795860001", fmt.Sprint(now.Unix()), "2026-11-28T10:00:01", now.Format("2006-01-02T15:04:05"))}
	d.mapping = filepath.Join(d.dir, "mine.yaml")
	blocks := regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")
	for i, recipe := range regexp.MustCompile(`(?m)^(\*\*|## )`).Split(string(text), -1) {
		for n, m := range blocks.FindAllStringSubmatch(recipe, -1) {
			if n == 0 {
				d.addSourceOf(t, fmt.Sprint("gateway-", i), regexp.MustCompile(`--format (\w+)`).FindStringSubmatch(recipe))
			}
			d.run(t, m[1], m[2])
		}
	}
	// The commands of pull come before the mapping that one of them uses.
	for _, line := range regexp.MustCompile("(?m)^carstate pull .*").FindAllString(string(text), -1) {
		d.pull(t, line)
	}
	if got, want := fmt.Sprint(d.ran), "map[conf:1 console:5 json:1 pull:4 sh:1 text:1 toml:1 yaml:2]"; got != want {
		t.Errorf("got examples %s, want %s", got, want)
	}
}

func (d *connectDoc) addSourceOf(t *testing.T, name string, format []string) {
	args := []string{"source", "add", name, "--vehicles", "all"}
	if format != nil && format[1] != "viss" {
		args = append(args, "--format", format[1])
	}
	d.source, d.key = name, strings.TrimSpace(d.carstate(t, args...))
}

func (d *connectDoc) run(t *testing.T, kind, text string) {
	switch d.ran[kind]++; kind {
	case "sh":
		d.wantAccepted(t, text)
	case "console":
		command, rest, _ := strings.Cut(text, "\n")
		message, want, _ := strings.Cut(rest, "=> ")
		d.try(t, strings.Fields(command)[2:], message, want)
		d.send(t, command, strings.TrimSpace(d.sinceThen.Replace(message)))
	case "conf":
		d.bridge(t, text)
	case "json":
		d.nodeRED(t, text)
	case "yaml":
		if payload := regexp.MustCompile(`payload: '(.*)'`).FindStringSubmatch(text); payload != nil {
			body := regexp.MustCompile(`\{\{ utcnow.*?\}\}`).ReplaceAllString(payload[1], time.Now().UTC().Format(time.RFC3339))
			d.post(t, strings.ReplaceAll(body, "{{ speed }}", "31"))
			return
		}
		if _, err := format.Parse(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		testkit.NoError(t, os.WriteFile(d.mapping, []byte(text), 0o600))
	}
}

// wantAccepted runs a command of the shell that sends a sample by HTTP.
func (d *connectDoc) wantAccepted(t *testing.T, command string) {
	c := exec.CommandContext(t.Context(), "sh", "-e", "-c",
		strings.ReplaceAll(command, "http://127.0.0.1:8081", d.URL(nodeprocess.Ingest)))
	c.Env = append(os.Environ(), "CARSTATE_KEY="+d.key)
	if out, err := c.Output(); err != nil || string(out) != acceptedOne {
		t.Errorf("%s: %s, %v", command, out, err)
	}
}

func (d *connectDoc) try(t *testing.T, args []string, message, want string) {
	c := exec.CommandContext(t.Context(), plain, args...)
	c.Stdin = strings.NewReader(message)
	out, err := c.Output()
	if strings.Contains(want, "NOW") {
		out = regexp.MustCompile(`"time":\d{13}`).ReplaceAll(out, nil)
		want = strings.Replace(want, `"time":NOW`, "", 1)
	}
	if err != nil || !bytes.Equal(out, []byte(want)) {
		t.Errorf("%q: got %s, want %s (%v)", args, out, want, err)
	}
}

// send sends a message by MQTT if the command names a topic, as a form in the address if it is one, and
// otherwise as the body of a request.
func (d *connectDoc) send(t *testing.T, command, message string) {
	_, topic, ok := strings.Cut(command, "--topic ")
	switch {
	case ok:
		d.publish(t, d.Address(nodeprocess.MQTT), topic, message, "-u", d.source, "-P", d.key)
	case strings.HasPrefix(message, "id="):
		resp, err := http.Get(d.URL(nodeprocess.Ingest) + "/v1/telemetry?key=" + d.key + "&" + message)
		testkit.NoError(t, err)
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "OK!" {
			t.Errorf("%s: %s, %v", message, body, err)
		}
	default:
		d.post(t, message)
	}
}

func (d *connectDoc) post(t *testing.T, body string) {
	req, err := http.NewRequest(http.MethodPost, d.URL(nodeprocess.Ingest)+"/v1/telemetry", strings.NewReader(body))
	testkit.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+d.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != acceptedOne {
		t.Errorf("%s: %s, %v", body, got, err)
	}
}

// publish publishes with MQTT 5, in which a refusal makes mosquitto_pub print its reason.
func (d *connectDoc) publish(t *testing.T, addr, topic, message string, flags ...string) {
	host, port, _ := net.SplitHostPort(addr)
	args := append([]string{"-h", host, "-p", port, "-V", "mqttv5", "-q", "1", "-t", topic, "-m", message}, flags...)
	if out, err := exec.CommandContext(t.Context(), "mosquitto_pub", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %s, %v", topic, out, err)
	}
}

// accepted returns how many samples of the source were accepted.
func (d *connectDoc) accepted(t *testing.T) int {
	var s struct{ Seen struct{ Accepted int } }
	testkit.NoError(t, json.Unmarshal([]byte(d.carstate(t, "source", "show", d.source, "--json")), &s))
	return s.Seen.Accepted
}

// bridge starts a mosquitto with the configuration of a bridge.
func (d *connectDoc) bridge(t *testing.T, config string) {
	l := testkit.Listen(t)
	d.broker = l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(d.broker)
	config = fmt.Sprintf("user root\nlistener %s %s\nallow_anonymous true\n%s", port, host, strings.NewReplacer(
		"127.0.0.1:1883", d.Address(nodeprocess.MQTT), "gateway-1", d.source, "KEY", d.key).Replace(config))
	file := filepath.Join(d.dir, "mosquitto.conf")
	testkit.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	broker := exec.Command("mosquitto", "-c", file)
	testkit.NoError(t, broker.Start())
	t.Cleanup(func() { _, _ = broker.Process.Kill(), broker.Wait() })
	testkit.Await(t, "mosquitto listens", func() bool {
		c, err := net.Dial("tcp", d.broker)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	d.publish(t, d.broker, "vehicles/CarX/telemetry",
		fmt.Sprintf(`{"time":%d,"signals":{"Vehicle.Speed":31}}`, time.Now().UnixMilli()))
	testkit.Await(t, "the message crosses the bridge", func() bool { return d.accepted(t) == 1 })
}

// nodeRED runs a flow until its first message is accepted.
func (d *connectDoc) nodeRED(t *testing.T, flow string) {
	file := filepath.Join(d.dir, "flow.json")
	flow = strings.ReplaceAll(flow, "http://127.0.0.1:8081", d.URL(nodeprocess.Ingest))
	testkit.NoError(t, os.WriteFile(file, []byte(flow), 0o600))
	c := exec.Command("../../.cache/npm/node_modules/.bin/node-red", "-u", d.dir, "-D", "httpAdminRoot=false",
		"-D", "httpNodeRoot=false", file)
	c.Env = append(os.Environ(), "CARSTATE_KEY="+d.key)
	testkit.NoError(t, c.Start()) // make setup installs it
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	testkit.Await(t, "Node-RED sends a sample", func() bool { return d.accepted(t) > 0 })
}

// pull runs the command for MQTT with the broker of the bridge, and checks the flags of the others.
func (d *connectDoc) pull(t *testing.T, line string) {
	d.ran["pull"]++
	args := strings.Fields(strings.NewReplacer("'", "", "mine.yaml", d.mapping, "mqtt://broker", "mqtt://"+d.broker).Replace(line))
	c := exec.Command(plain, append(args[1:], "--ingest-url", d.URL(nodeprocess.Ingest))...)
	if !strings.Contains(line, "mqtt://") {
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "set CARSTATE_KEY") {
			t.Errorf("%s: %s, %v", line, out, err)
		}
		return
	}
	d.addSourceOf(t, "puller", nil)
	c.Env = append(os.Environ(), "CARSTATE_KEY="+d.key)
	testkit.NoError(t, c.Start())
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	testkit.Await(t, "a pulled message is accepted", func() bool {
		d.publish(t, d.broker, "owntracks/jane/phone", fmt.Sprintf(`{"_type":"location","tst":%d,"vel":31}`, time.Now().Unix()))
		return d.accepted(t) > 0
	})
}

// TestIngestPage_Example runs the command of the page at the ingest listener.
func TestIngestPage_Example(t *testing.T) {
	t.Parallel()
	d := &connectDoc{process: start(t, t.TempDir())}
	d.addSourceOf(t, "gateway-1", nil)
	resp, err := http.Get(d.URL(nodeprocess.Ingest))
	testkit.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	testkit.NoError(t, err)
	example := regexp.MustCompile(`(?s)CARSTATE_KEY=css_…\n(.*?)</code>`).FindSubmatch(page)
	if example == nil {
		t.Fatalf("the page has no command:\n%s", page)
	}
	d.wantAccepted(t, html.UnescapeString(string(example[1])))
}
