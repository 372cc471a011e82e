package ingest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/test/testkit"
)

func mosquitto(t *testing.T, name string, args ...string) (output string, ok bool) {
	t.Helper()
	testkit.Slow(t, "it starts mosquitto_pub")
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("the program %s: got none, want it: apt-get install mosquitto-clients", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s %s: got no end in 20s, want one:\n%s", name, args, out)
	}
	return string(out), err == nil
}

// A bridge first tries a protocol level of its own, and publishes its state. A refused message does
// not keep back those behind it.
func TestMQTT_MosquittoBridge(t *testing.T) {
	testkit.Slow(t, "it starts mosquitto")
	for settings, refused := range map[string]float64{"": 1, "bridge_protocol_version mqttv50\n": 0} {
		t.Run(settings, func(t *testing.T) {
			f := newFixture(t)
			_, addr := startMQTT(t, f.Config)
			file, socket := filepath.Join(t.TempDir(), "conf"), filepath.Join(t.TempDir(), "socket")
			config := fmt.Sprintf("user root\nlistener 0 %s\nallow_anonymous true\nconnection c\naddress %s\n"+
				"remote_username car\nremote_password %s\ntopic vehicles/+/telemetry out 1\n%s", socket, addr, f.key, settings)
			testkit.NoError(t, os.WriteFile(file, []byte(config), 0o600))
			broker := exec.Command("mosquitto", "-c", file)
			if err := broker.Start(); err != nil {
				t.Fatalf("mosquitto: got %v, want no error: apt-get install mosquitto", err)
			}
			defer func() { _, _ = broker.Process.Kill(), broker.Wait() }()
			publish := func(vid, payload string) {
				testkit.Await(t, "mosquitto takes a message", func() bool {
					_, ok := mosquitto(t, "mosquitto_pub", "--unix", socket, "-q", "1", "-t", "vehicles/"+vid+"/telemetry",
						"-m", payload)
					return ok
				})
			}
			publish("V1", sampleLine("V1", 1, 1))
			publish("V1", "hello")
			publish("V9", sampleLine("V9", 1, 9))
			publish("V2", sampleLine("V2", 1, 2))
			testkit.Await(t, "all is forwarded", func() bool { return f.metric(t, "carstate_samples_accepted_total") == 2 })
			f.store.wants(t, "V1 1", "V2 2")
			f.wantMetric(t, 2, ingest.MetricRefused)
			f.wantMetric(t, 1, "carstate_mqtt_connections")
			f.wantMetric(t, refused, ingest.MetricConnectionsRefused, "reason", "version")
		})
	}
}

func TestMQTT_OtherClients(t *testing.T) {
	testkit.Slow(t, "it starts Python and Node.js")
	for _, program := range [][]string{{"/usr/bin/python3", "testdata/client.py"}, {"node", "testdata/client.js"}} {
		bothVersions(t, func(t *testing.T, version byte) {
			f := newFixture(t)
			_, addr := startMQTT(t, f.Config)
			host, port, _ := net.SplitHostPort(addr)
			c := exec.CommandContext(shutdownContext(t), program[0], program[1], host, port, fmt.Sprint(version), "car", f.key,
				topicV1, sampleLine("V1", 1, 1), topicV1, "hello", "elsewhere", "x", topicV1, sampleLine("V1", 2, 2))
			c.Env = append(os.Environ(), "NODE_PATH=../../.cache/npm/node_modules")
			if out, err := c.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "ok\n") {
				t.Errorf("%s: got error %v, want none and ok at the end:\n%s", program[1], err, out)
			}
			f.store.wants(t, "V1 1", "V1 2")
			f.wantMetric(t, 2, ingest.MetricRefused)
		})
	}
}
