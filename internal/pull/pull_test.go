package pull_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json/v2"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/pull"
	"example.org/carstate/internal/test/natsprocess"
	"example.org/carstate/internal/test/testkit"
)

// TestMain is also the process that tests kill.
func TestMain(m *testing.M) {
	if text := os.Getenv("PULL_TEST"); text != "" {
		var c pull.Config
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
		pull.Run(context.Background(), c)
	}
	os.Exit(m.Run())
}

type listener struct {
	*httptest.Server
	mu      sync.Mutex
	answers []func(http.ResponseWriter) // before it takes samples
	vids    map[string]int
	posts   int
}

func listen(t *testing.T) *listener {
	l := &listener{vids: map[string]int{}}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.posts++
		if len(l.answers) > 0 {
			l.answers[0](w)
			l.answers = l.answers[1:]
			return
		}
		if r.Header.Get("Authorization") != "Bearer key" || r.URL.Path != "/v1/telemetry" {
			t.Errorf("the request: got %s without the key, want /v1/telemetry with it", r.URL.Path)
		}
		accepted, rejected := 0, []map[string]any{}
		in := bufio.NewScanner(r.Body)
		for n := 1; in.Scan(); n++ {
			var x struct {
				VID string `json:"vid"`
			}
			if err := json.Unmarshal(in.Bytes(), &x); err != nil {
				t.Errorf("line %d: got %v, want no error", n, err)
			}
			if x.VID == "refused" {
				rejected = append(rejected, map[string]any{"line": n, "reason": "not allowed"})
				continue
			}
			l.vids[x.VID]++
			accepted++
		}
		w.WriteHeader(http.StatusAccepted)
		if err := json.MarshalWrite(w, map[string]any{"accepted": accepted, "rejected": rejected}); err != nil {
			t.Errorf("the answer: got %v, want no error", err)
		}
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.vids))
}

func sample(vid string) string {
	return fmt.Sprintf(`{"vid":%q,"time":1795147200250,"signals":{"Vehicle.Speed":12.4}}`, vid)
}

func address(t *testing.T, url string) pull.Address {
	t.Helper()
	a, err := pull.ParseAddress(url)
	testkit.NoError(t, err)
	return a
}

func run(t *testing.T, c pull.Config, to *listener) (log *testkit.Buffer, stop func()) {
	log = new(testkit.Buffer)
	c.Log, c.IngestURL, c.Key = slog.New(slog.NewTextHandler(log, nil)), to.URL, "key"
	if c.Group == "" {
		c.Group = "test"
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pull.Run(ctx, c)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Logf("log of pull:\n%s", log)
		}
	})
	return log, stop
}

func mosquitto(t *testing.T, topic string) (addr string, publish func(string)) {
	testkit.Slow(t, "it starts mosquitto")
	l := testkit.Listen(t)
	addr = l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(addr)
	file := filepath.Join(t.TempDir(), "conf")
	config := fmt.Sprintf("user root\nlistener %s %s\nallow_anonymous true\n", port, host)
	testkit.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	server := exec.Command("mosquitto", "-c", file)
	testkit.NoError(t, server.Start())
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
	testkit.Await(t, "mosquitto listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	client := exec.Command("mosquitto_pub", "-h", host, "-p", port, "-q", "1", "-l", "-t", topic)
	in, err := client.StdinPipe()
	testkit.NoError(t, err)
	testkit.NoError(t, client.Start())
	t.Cleanup(func() {
		in.Close()
		_ = client.Wait()
	})
	return addr, func(body string) {
		if _, err := io.WriteString(in, body+"\n"); err != nil {
			t.Errorf("the message: got %v, want no error", err)
		}
	}
}

// The broker answers a CONNECT of MQTT 5 as one of 3.1.1.
func onlyMQTT3(t *testing.T, broker string) string {
	l := testkit.Listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				head := make([]byte, 9)
				if _, err := io.ReadFull(c, head); err != nil {
					return
				}
				if head[8] != 4 {
					_, _ = c.Write([]byte{0x20, 2, 0, 1})
					return
				}
				to, err := net.Dial("tcp", broker)
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(c, to) }()
				_, _ = io.Copy(to, io.MultiReader(bytes.NewReader(head), c))
			}()
		}
	}()
	return l.Addr().String()
}

// jetStream has no stream if it has no name.
func jetStream(t *testing.T, stream, subject string) (addr string, publish func(string)) {
	testkit.Slow(t, "it builds and starts nats-server")
	dir := t.TempDir()
	binary, err := natsprocess.Build(t.Context(), "", dir)
	testkit.NoError(t, err)
	l := testkit.Listen(t)
	addr = l.Addr().String()
	l.Close()
	host, port, _ := net.SplitHostPort(addr)
	args := []string{"-a", host, "-p", port}
	if stream != "" {
		args = append(args, "-js", "-sd", dir)
	}
	s := &natsprocess.Server{Binary: binary, Name: "n", Args: args}
	testkit.NoError(t, s.Start())
	t.Cleanup(s.Kill)
	var nc *nats.Conn
	testkit.Await(t, "NATS listens", func() bool {
		nc, err = nats.Connect("nats://" + addr)
		return err == nil
	})
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	testkit.NoError(t, err)
	if stream != "" {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}})
		testkit.NoError(t, err)
	}
	return addr, func(body string) {
		if stream == "" {
			err = nc.Publish(subject, []byte(body))
		} else {
			_, err = js.Publish(t.Context(), subject, []byte(body))
		}
		if err != nil {
			t.Errorf("Publish: got %v, want no error", err)
		}
	}
}

func kafka(t *testing.T, topic string, opts ...kfake.Opt) (addr string, publish func(string)) {
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.SeedTopics(1, topic))...)
	testkit.NoError(t, err)
	t.Cleanup(c.Close)
	addr = c.ListenAddrs()[0]
	return addr, func(body string) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		testkit.NoError(t, err)
		defer cl.Close()
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(body)}).FirstErr(); err != nil {
			t.Errorf("ProduceSync: got %v, want no error", err)
		}
	}
}

func TestKill_LosesNothing(t *testing.T) {
	testkit.Slow(t, "it starts brokers and processes")
	for name, start := range map[string]func(t *testing.T) (url, topic string, publish func(string)){
		"MQTT 5": func(t *testing.T) (string, string, func(string)) {
			addr, publish := mosquitto(t, "telemetry")
			return "mqtt://" + addr, "telemetry", publish
		},
		"MQTT 3.1.1": func(t *testing.T) (string, string, func(string)) {
			addr, publish := mosquitto(t, "telemetry")
			return "mqtt://" + onlyMQTT3(t, addr), "telemetry/#", publish // matches its parent, too
		},
		"Kafka": func(t *testing.T) (string, string, func(string)) {
			addr, publish := kafka(t, "telemetry")
			return "kafka://" + addr, "telemetry", publish
		},
		"NATS": func(t *testing.T) (string, string, func(string)) {
			addr, publish := jetStream(t, "CARS", "cars.telemetry")
			return "nats://" + addr, "cars.*", publish
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, topic, publish := start(t)
			to := listen(t)
			text, err := json.Marshal(pull.Config{
				Address: address(t, url), Topics: []string{topic}, Group: "test", IngestURL: to.URL, Key: "key"})
			testkit.NoError(t, err)
			var p *exec.Cmd
			log := new(testkit.Buffer)
			begin := func() {
				p = exec.Command(os.Args[0])
				p.Env, p.Stderr = append(os.Environ(), "PULL_TEST="+string(text)), log
				testkit.NoError(t, p.Start())
			}
			begin()
			defer func() {
				_, _ = p.Process.Kill(), p.Wait()
				if t.Failed() {
					t.Logf("log of pull:\n%s", log)
				}
			}()
			testkit.Await(t, "it is connected", func() bool { return log.Count("connected") > 0 })
			testkit.Await(t, "it is subscribed", func() bool { publish(sample("first")); return len(to.got()) > 0 })
			const kills, each = 2, 60
			for k := range kills {
				before := len(to.got())
				for i := range each {
					publish(sample(fmt.Sprintf("V%dx%d", k, i)))
					if i == each/3 {
						publish("not JSON")
						publish(sample("refused"))
						to.mu.Lock()
						to.answers = append(to.answers, func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
						to.mu.Unlock()
					}
				}
				// kfake keeps a member that was killed while it joined for more than a minute.
				testkit.Await(t, "this process delivers", func() bool { return len(to.got()) > before })
				_, _ = p.Process.Kill(), p.Wait()
				begin()
			}
			testkit.Await(t, "all messages arrive", func() bool { return len(to.got()) == kills*each+1 })
		})
	}
}

// Only a final answer commits a place, also after a signal.
func TestRun_Retries(t *testing.T) {
	testkit.Slow(t, "it waits before three retries")
	to, acked, end := listen(t), make(chan int, 9), func() {}
	to.answers = []func(http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.Header().Set("Carstate-Format", "mapped") // of a source with a format
			fmt.Fprint(w, `{"accepted":1,"rejected":[]}`)
		},
		func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"accepted":0,"rejected":[]}`) // not what was sent
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
		func(w http.ResponseWriter) {
			end()
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"accepted":1,"rejected":[]}`)
		},
	}
	url := brokerOf(t, acked, publishPacket("t", 7, 0, sample("V1")))
	to.mu.Lock()
	log, stop := run(t, pull.Config{Address: address(t, url), Topics: []string{"t"}}, to)
	end = stop
	to.mu.Unlock()
	if got := <-acked; got != 7 || to.posts != 4 {
		t.Errorf("packet %d was acknowledged after %d posts, want 7 after 4", got, to.posts)
	}
	if n := log.Count("level=WARN"); n != 1 {
		t.Errorf("%d warnings, want 1 a minute", n)
	}
}

func TestRun_HostileMQTT(t *testing.T) {
	arrival, err := format.Parse(`{vid: {path: vid}, time: {unit: arrival}, under: $.signals}`)
	testkit.NoError(t, err)
	retained := publishPacket("t", 1, 0, sample("V2"))
	retained[0] |= 1
	for name, packets := range map[string][]byte{
		"a message of 2 MiB":   publishPacket("t", 1, 0, strings.Repeat("x", 2<<20)),
		"2 MiB of properties":  publishPacket("t", 1, 2<<20, ""),
		"a retained message":   retained,
		"a topic that is cut":  {0x32, 3, 0, 9, 'a'},
		"another type":         {0x10, 0},
		"QoS 2":                {0x34, 6, 0, 1, 't', 0, 1, 0},
		"a length without end": {0x30, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"properties too long":  {0x30, 5, 0, 1, 't', 0xff, 0x7f},
		"a message that is no telemetry": slices.Concat(publishPacket("t", 1, 0, "secret"),
			publishPacket("t", 2, 0, "")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, acked := listen(t), make(chan int, 9)
			url := brokerOf(t, acked, packets, publishPacket("t", 7, 0, sample("V1")))
			log, _ := run(t, pull.Config{Address: address(t, url), Topics: []string{"t"}, Format: arrival}, to)
			for got := 0; got != 7; got = <-acked {
			}
			if !slices.Equal(to.got(), []string{"V1"}) {
				t.Errorf("stored %q, want V1", to.got())
			}
			if log.Count("secret") > 0 {
				t.Error("the log: got a message in it, want none")
			}
		})
	}
}

func FuzzPacket(f *testing.F) {
	f.Fuzz(func(t *testing.T, sent []byte, version byte) {
		l, to, ended := testkit.Listen(t), listen(t), make(chan struct{})
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				connect := make([]byte, 9) // up to the version
				_, _ = io.ReadFull(c, connect)
				if version == 4 && connect[8] == 5 {
					_, _ = c.Write([]byte{0x20, 2, 0, 1})
					c.Close()
					continue
				}
				accepts := []byte{0x20, connect[8] - 2, 0, 0, 0}[:connect[8]]
				_, _ = c.Write(append(accepts, sent...))
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				c.Close()
				close(ended)
				return
			}
		}()
		_, stop := run(t, pull.Config{Address: address(t, "mqtt://"+l.Addr().String()), Topics: []string{"t"}}, to)
		<-ended
		stop()
	})
}

func publishPacket(topic string, id byte, properties int, body string) []byte {
	rest := append([]byte{0, byte(len(topic))}, topic...)
	rest = binary.AppendUvarint(append(rest, 0, id), uint64(properties))
	rest = append(append(rest, make([]byte, properties)...), body...)
	return append(binary.AppendUvarint([]byte{0x32}, uint64(len(rest))), rest...)
}

// brokerOf sends each client the next packets, and the last ones to all further clients.
func brokerOf(t *testing.T, acked chan<- int, packets ...[]byte) (url string) {
	l := testkit.Listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			send := packets[0]
			if len(packets) > 1 {
				packets = packets[1:]
				send = append(slices.Clone(send), packets[0]...)
			}
			go func() {
				defer c.Close()
				_, _ = c.Write([]byte{0x20, 3, 0, 0, 0})
				go func() { _, _ = c.Write(send) }()
				in := bufio.NewReader(c)
				for {
					head := make([]byte, 2)
					if _, err := io.ReadFull(in, head); err != nil {
						return
					}
					body := make([]byte, head[1])
					if _, err := io.ReadFull(in, body); err != nil {
						return
					}
					if head[0] == 0x40 {
						acked <- int(body[1])
					}
				}
			}()
		}
	}()
	return "mqtt://" + l.Addr().String()
}

func TestRun_Kafka_LoginAndTLS(t *testing.T) {
	cert, key, roots := testkit.Certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	testkit.NoError(t, err)
	addr, _ := kafka(t, "cars", kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "ada", "topsecret"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	trust := &tls.Config{RootCAs: roots}
	c := pull.Config{Address: address(t, "kafka://"+addr), Topics: []string{"cars"}, TLS: trust, User: "ada",
		Password: "topsecret", SASL: "scram-sha-256"}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DialTLSConfig(trust),
		kgo.SASL(scram.Auth{User: "ada", Pass: "topsecret"}.AsSha256Mechanism()))
	testkit.NoError(t, err)
	defer cl.Close()
	r := &kgo.Record{Topic: "cars", Key: []byte("CarX"), Value: []byte(`{"v":"12.4"}`)}
	testkit.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	c.Format, err = format.Parse(`{vid: {topic: [2]}, time: {unit: arrival}, signals: {Vehicle.Speed: {path: $.v}}}`)
	testkit.NoError(t, err)
	to := listen(t)
	log, stop := run(t, c, to)
	testkit.Await(t, "the record arrives", func() bool { return slices.Equal(to.got(), []string{"CarX"}) })
	stop()
	c.Password = "wrong"
	log2, _ := run(t, c, to)
	testkit.Await(t, "the login is refused", func() bool { return log2.Count("WARN") > 0 })
	if log.Count("topsecret")+log2.Count("wrong") > 0 {
		t.Error("the log: got a password in it, want none")
	}
}

func TestRun_NATSWithoutStream(t *testing.T) {
	addr, publish := jetStream(t, "", "cars.x")
	to := listen(t)
	log, _ := run(t, pull.Config{Address: address(t, "nats://"+addr), Topics: []string{"cars.>"}}, to)
	testkit.Await(t, "it is connected", func() bool { return log.Count("connected") > 0 })
	publish(sample("V1"))
	testkit.Await(t, "the message arrives", func() bool { return len(to.got()) == 1 })
	if log.Count("are lost") != 1 {
		t.Errorf("lines that messages can be lost: got %d, want 1", log.Count("are lost"))
	}
}

func TestRun_VISS(t *testing.T) {
	asked := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"VISSv2"}})
		if err != nil {
			t.Errorf("Accept: got %v, want no error", err)
			return
		}
		defer c.CloseNow()
		for _, refusal := range []string{`{"action":"subscribe","requestId":"0","error":{"number":400}}`, ""} {
			_, request, err := c.Read(r.Context())
			if err != nil || refusal != "" && c.Write(r.Context(), websocket.MessageText, []byte(refusal)) != nil {
				return
			}
			asked <- string(request)
		}
		for _, event := range []string{
			`{"action":"subscribe","subscriptionId":"1","requestId":"1","ts":"2026-11-20T04:00:00Z"}`,
			`{"action":"subscription","data":{"path":"Vehicle.Speed","dp":{"value":"50","ts":"2026-11-20T04:00:00Z"}}}`,
		} {
			if c.Write(r.Context(), websocket.MessageText, []byte(event)) != nil {
				return
			}
		}
		_, _, _ = c.Read(r.Context())
	}))
	t.Cleanup(server.Close)
	to := listen(t)
	f, err := format.Parse("viss")
	testkit.NoError(t, err)
	c := pull.Config{Topics: []string{"Vehicle.Speed"}, Vehicle: "CarX", Format: f, Password: "token",
		Address: address(t, strings.Replace(server.URL, "http", "viss", 1)+"/x")}
	run(t, c, to)
	const request = `{"action":"subscribe","authorization":"token",` +
		`"filter":{"parameter":{"period":%s},"type":"timebased","variant":"timebased"},"path":"Vehicle.Speed","requestId":%q}` +
		"\n"
	for id, period := range []string{`"1000"`, "1000"} {
		want := fmt.Sprintf(request, period, fmt.Sprint(id))
		if got := <-asked; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
	testkit.Await(t, "the event arrives", func() bool { return slices.Equal(to.got(), []string{"CarX"}) })
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"mqtt://b":            "mqtt [b:1883] / false",
		"mqtts://b":           "mqtt [b:8883] / true",
		"mqtt://[::1]:1":      "mqtt [[::1]:1] / false",
		"kafka://a,b:1":       "kafka [a:9092 b:1] / false",
		"nats://a:1,b":        "nats [a:1 b:4222] / false",
		"viss://car:8090/x/y": "viss [car:8090] /x/y false",
		"mqtt://ada:pw@b":     "CARSTATE_BROKER_PASSWORD",
		"viss://tok@b":        "CARSTATE_BROKER_PASSWORD",
		"mqtt://a,b":          "the URL must be",
		"kafka://a/x":         "the URL must be",
		"http://a":            "the URL must be",
		"mqtt://":             "the URL must be",
		"mqtt://a:b":          "the URL must be",
		"mqtt://a?x=1":        "the URL must be",
		"":                    "the URL must be",
	} {
		a, err := pull.ParseAddress(text)
		got := fmt.Sprint(a.Scheme, " ", a.Hosts, " ", a.Path, " ", a.TLS)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
		if err != nil && strings.Contains(got, "pw") {
			t.Errorf("%q: got the password in %s, want it not", text, got)
		}
	}
}
