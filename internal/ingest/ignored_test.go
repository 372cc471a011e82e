package ingest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/paho"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/testkit"
)

func signalsLine(names ...string) string {
	var list []string
	for _, n := range names {
		list = append(list, fmt.Sprintf("%q:12", n))
	}
	return `{"vid":"V1","time":1795147200000,"signals":{` + strings.Join(list, ",") + `}}`
}

func unknownNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("x.%02d", n-i))
	}
	return names
}

func TestHTTPNamesTheSignalsThatItIgnores(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	const quoted = `["x.04","x.05","x.06","x.07","x.08","x.09","x.10","x.11","x.12","x.13"]`
	for _, r := range []request{
		{body: signalsLine("Vehicle.Sped"), status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored":["Vehicle.Sped"],"did_you_mean":{"Vehicle.Sped":"Vehicle.Speed"}}`},
		{body: signalsLine("Vehicle.Speed"), status: 202, answer: `{"accepted":1,"rejected":[]}`},
		{body: signalsLine("Speed"), status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored":["Speed"],"did_you_mean":{"Speed":"Vehicle.Speed"}}`},
		{body: signalsLine("x-2", "Vehicle.Speed", "b_1") + "\n" + signalsLine("b_1", "Vehicle.Cabin.Door.Count"),
			status: 202,
			answer: `{"accepted":2,"rejected":[],"ignored":["Vehicle.Cabin.Door.Count","b_1","x-2"]}`},
		// The second line is read by general.
		{body: signalsLine("x") + "\n" + strings.Replace(signalsLine("z", "x"), "vid", `v\u0069d`, 1), status: 202,
			answer: `{"accepted":2,"rejected":[],"ignored":["x","z"]}`},
		// A line is read twice, and each signal counted once.
		{body: strings.Replace(signalsLine(append(unknownNames(11), "y")...), "}}", `},"n":{}}`, 1), status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored":` +
				`["x.02","x.03","x.04","x.05","x.06","x.07","x.08","x.09","x.10","x.11"],"ignored_unnamed":2}`},
		{body: signalsLine(unknownNames(13)...), status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored":` + quoted + `,"ignored_unnamed":3}`},
		{body: signalsLine("<b>", "ä", "", "a b", strings.Repeat("x", 81)), status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored_unnamed":5}`},
		// A key in place of a name is not repeated.
		{body: signalsLine(f.key, "x."+f.key), status: 202, answer: `{"accepted":1,"rejected":[],"ignored_unnamed":2}`},
		{body: signalsLine(strings.Repeat("x", 80)), status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored":["` + strings.Repeat("x", 80) + `"]}`},
		{header: "Content-Type: application/json", body: signalsLine("x"), status: 202,
			answer: `{"accepted":1,"rejected":[],"ignored":["x"]}`},
		{body: `{"vid":"V1","signals":{"Vehicle.Sped":1}}`, status: 400,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"time is missing` + members + `"}],` +
				`"ignored":["Vehicle.Sped"],"did_you_mean":{"Vehicle.Sped":"Vehicle.Speed"}}`},
	} {
		r.send(t, url, f.key)
	}
}

const strictText = " is unknown, and this source is strict: it may send only known signals"

func TestStrictSourceRefusesUnknownSignals(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	_, key := f.addSource(t, access.Credential{Name: "slow", Vehicles: f.source.Vehicles, Strict: true})
	const reason = "Vehicle.Sped (did you mean Vehicle.Speed?)" + strictText
	for _, r := range []request{
		{body: signalsLine("Vehicle.Speed", "Vehicle.Sped", "x"), status: 400,
			answer: `{"accepted":0,"rejected":[{"line":1,"reason":"` + reason +
				`"}],"ignored":["Vehicle.Sped","x"],"did_you_mean":{"Vehicle.Sped":"Vehicle.Speed"}}`},
		{body: signalsLine("Vehicle.Speed") + "\n" + signalsLine("<b>"), status: 202,
			answer: `{"accepted":1,"rejected":[{"line":2,"reason":"a signal` + strictText + `"}],"ignored_unnamed":1}`},
		{body: signalsLine("Vehicle.Speed"), status: 202, answer: `{"accepted":1,"rejected":[]}`},
		{body: `{"vid":"V1","time":1795147200000,"seq":7,"signals":{"Vehicle.Speed":12},"x":1}`, status: 202,
			answer: `{"accepted":1,"rejected":[]}`},
	} {
		r.send(t, url, key)
	}
	f.store.wants(t, "V1 12", "V1 12", "V1 12")
	f.wantMetric(t, 2, "carstate_samples_refused_total", "protocol", "http", "reason", "unknown_signal")
	const shown = "a signal (did you mean Vehicle.Speed?)" + strictText
	if s := f.seen(t); s.Refused[access.UnknownSignal] != 2 || s.Noted[len(s.Noted)-1].Text != shown {
		t.Errorf("got activity %+v, want 2 refusals of unknown signals, the first %q", s, shown)
	}
}

// connectPaho asks for no limit of silence.
func (f *fixture) connectPaho(t *testing.T, addr, user, key string, p *paho.ConnectProperties) (
	*paho.Client, *paho.Connack,
) {
	t.Helper()
	client := paho.NewClient(paho.ClientConfig{Conn: testkit.Dial(t, addr)})
	ack, err := client.Connect(shutdownContext(t), &paho.Connect{
		ClientID: "gateway", CleanStart: true, Properties: p,
		Username: user, UsernameFlag: true, Password: []byte(key), PasswordFlag: true,
	})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Disconnect(&paho.Disconnect{})
		<-client.Done()
	})
	return client, ack
}

func published(t *testing.T, client *paho.Client, payload string) (code byte, reason string) {
	t.Helper()
	r, err := client.Publish(shutdownContext(t), &paho.Publish{Topic: topicV1, QoS: 1, Payload: []byte(payload)})
	if r == nil {
		t.Fatalf("%.100s: got no PUBACK, error %v; want one", payload, err)
	}
	if r.Properties != nil {
		reason = r.Properties.ReasonString
	}
	return r.ReasonCode, reason
}

func TestMQTTNamesTheSignalsThatItIgnores(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	client, _ := f.connectPaho(t, addr, "car", f.key, nil)
	for payload, wants := range map[string]string{
		signalsLine("Vehicle.Speed"):               "",
		signalsLine("Vehicle.Sped", "x"):           "unknown signals: Vehicle.Sped (did you mean Vehicle.Speed?), x",
		signalsLine("x") + "\n" + signalsLine("x"): "unknown signals: x",
		signalsLine("<b>", "ä"):                    "unknown signals: 2",
		signalsLine("<b>", "b"):                    "unknown signals: b, and 1 more",
	} {
		if code, reason := published(t, client, payload); code != 0 || reason != wants {
			t.Errorf("%s: got code %#x, reason %q; want 0, %q", payload, code, reason, wants)
		}
	}
	if _, err := client.Publish(shutdownContext(t),
		&paho.Publish{Topic: topicV1, Payload: []byte(signalsLine("x"))}); err != nil {
		t.Errorf("Publish: got %v, want no error", err)
	}
	if code, reason := published(t, client, signalsLine("y")); code != 0 || reason != "unknown signals: y" {
		t.Errorf("after QoS 0: got code %#x, reason %q; want 0, unknown signals: y", code, reason)
	}
	f.wantMetric(t, 10, "carstate_signals_ignored_total", "protocol", "mqtt")
}

// MQTT forbids to send more than the client accepts.
func TestMQTTReason_FitsMaximumPacketSize(t *testing.T) {
	f := newFixture(t)
	_, addr := startMQTT(t, f.Config)
	payload, reasons := signalsLine(unknownNames(3)...), 0
	client, _ := f.connectPaho(t, addr, "car", f.key, &paho.ConnectProperties{RequestProblemInfo: false})
	if code, reason := published(t, client, payload); code != 0 || reason != "" {
		t.Errorf("no problem information: got code %#x, reason %q; want 0 and none", code, reason)
	}
	for size := uint32(24); size < 64; size++ {
		client, _ := f.connectPaho(t, addr, "car", f.key,
			&paho.ConnectProperties{MaximumPacketSize: &size, RequestProblemInfo: true})
		code, reason := published(t, client, payload)
		if reason != "" {
			reasons++
		}
		if code != 0 {
			t.Errorf("maximum packet size %d: got code %#x, want 0", size, code)
		}
	}
	if reasons == 0 || reasons == 40 {
		t.Errorf("got reasons in %d of 40 PUBACKs, want some but not all", reasons)
	}
}

func TestResemblingNames(t *testing.T) {
	f := newFixture(t)
	_, url := startHTTP(t, f)
	names, err := os.ReadFile("testdata/resembling.txt")
	testkit.NoError(t, err)
	for line := range strings.Lines(string(names)) {
		name, wants, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		answer := `{"accepted":1,"rejected":[],"ignored":["` + name + `"]`
		if wants != "" {
			answer += `,"did_you_mean":{"` + name + `":"` + wants + `"}`
		}
		request{body: signalsLine(name), status: 202, answer: answer + "}"}.send(t, url, f.key)
	}
}
