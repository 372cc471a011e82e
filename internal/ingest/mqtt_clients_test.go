package ingest

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"example.org/carstate/internal/testkit"
)

// mosquitto runs one of Debian's Mosquitto clients. It returns the client's output and whether it
// succeeded. If the client is not installed, or does not end within 20 s, the test fails.
func mosquitto(t *testing.T, name, addr string, args ...string) (output string, ok bool) {
	t.Helper()
	testkit.Slow(t, "it starts mosquitto_pub and mosquitto_sub")
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: apt-get install mosquitto-clients", name)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, append([]string{"-h", host, "-p", port}, args...)...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s %s does not end:\n%s", name, args, out)
	}
	return string(out), err == nil
}

func TestMQTT_MosquittoClients(t *testing.T) {
	for _, version := range []string{"mqttv311", "mqttv5"} {
		t.Run(version, func(t *testing.T) {
			f := newFixture(t)
			_, addr := startMQTT(t, f.Config)
			login := []string{"-V", version, "-u", "car", "-P", f.key}
			publish := func(args ...string) bool {
				t.Helper()
				out, ok := mosquitto(t, "mosquitto_pub", addr, append(args, login...)...)
				if strings.Contains(out, f.key) {
					t.Error("the key was printed")
				}
				return ok
			}
			if !publish("-t", topicV1, "-q", "1", "-m", sampleLine("V1", 1, 1)) {
				t.Error("QoS 1 was not acknowledged")
			}
			if !publish("-t", topicV1, "-q", "1", "-m", sampleLine("V1", 2, 2)+"\n"+sampleLine("V1", 3, 3)) {
				t.Error("NDJSON was not acknowledged")
			}
			f.store.wants(t, "V1 1", "V1 2", "V1 3")
			publish("-t", topicV1, "-q", "0", "-m", sampleLine("V1", 4, 4))
			testkit.Await(t, "QoS 0 is stored", func() bool { return len(f.store.describe()) == 4 })

			publish("-t", "vehicles/V9/telemetry", "-q", "1", "-m", sampleLine("V9", 1, 9))
			f.wantMetric(t, 1, "carstate_samples_refused_total", "reason", "not_allowed")
			publish("-t", topicV1, "-q", "2", "-m", sampleLine("V1", 5, 5))
			if len(f.store.describe()) != 4 {
				t.Errorf("stored %q: what was refused is there", f.store.describe())
			}
		})
		t.Run(version+" wrong key", func(t *testing.T) {
			f := newFixture(t)
			_, addr := startMQTT(t, f.Config)
			out, ok := mosquitto(t, "mosquitto_pub", addr, "-V", version, "-u", "car", "-P", "wrong", "-t", topicV1, "-q", "1",
				"-m", sampleLine("V1", 1, 1))
			said := strings.ToLower(out)
			if ok || !strings.Contains(said, "not authori") && !strings.Contains(said, "password") {
				t.Errorf("ended well: %t, and said %q", ok, out)
			}
			f.store.wants(t)
		})
		t.Run(version+" subscribe", func(t *testing.T) {
			f := newFixture(t)
			_, addr := startMQTT(t, f.Config)
			out, _ := mosquitto(t, "mosquitto_sub", addr, "-V", version, "-u", "car", "-P", f.key, "-t", "#", "-W", "5")
			if !strings.Contains(out, "denied") {
				t.Errorf("mosquitto_sub said %q", out)
			}
		})
	}
}

// TestMQTT_PahoClient checks limits from the CONNACK, user properties and reason codes with a client
// library that implements MQTT 5.
func TestMQTT_PahoClient(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	ctx := shutdownContext(t)
	client, ack := f.connectPaho(t, addr, "car", f.key, nil)
	p := ack.Properties
	if p.TopicAliasMaximum != nil || p.MaximumQoS == nil || *p.MaximumQoS != 1 || p.MaximumPacketSize == nil || *p.MaximumPacketSize != maxPacket || p.ServerKeepAlive == nil ||
		*p.ServerKeepAlive != maxKeepAlive {
		t.Errorf("CONNACK properties %+v", p)
	}
	r, err := client.Publish(ctx, &paho.Publish{
		Topic: topicV1, QoS: 1, Payload: []byte(sampleLine("V1", 1, 1)),
		Properties: &paho.PublishProperties{User: paho.UserProperties{{Key: "k", Value: "v"}}},
	})
	if err != nil || r.ReasonCode != 0 {
		t.Errorf("a good sample: %+v, %v", r, err)
	}
	r, err = client.Publish(ctx, &paho.Publish{Topic: topicV1, QoS: 1, Payload: []byte(sampleLine("V2", 9, 5))})
	if err == nil || r == nil || r.ReasonCode != 0x99 || !strings.Contains(r.Properties.ReasonString, "vid") {
		t.Errorf("a bad sample: %+v, %v", r, err)
	}
	f.store.wants(t, "V1 1")
}
