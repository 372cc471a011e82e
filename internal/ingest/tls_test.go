package ingest_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/test/testkit"
)

func (f *fixture) useTLS(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	f.TLS = &tls.Config{Certificates: s.TLS.Certificates}
	return &tls.Config{RootCAs: roots, ServerName: "example.com"}
}

func TestMQTTOverTLSBesidePlain(t *testing.T) {
	f := newFixture(t)
	config := f.useTLS(t)
	m, plain := startMQTT(t, f.Config)
	l := testkit.Listen(t)
	done := make(chan error, 1)
	go func() { done <- m.ServeTLS(l) }()

	conn, err := tls.Dial("tcp", l.Addr().String(), config)
	testkit.NoError(t, err)
	defer conn.Close()
	c := &rawClient{t, 5, "id", conn, bufio.NewReader(conn)}
	c.logIn("car", f.key)
	c.publish(2, 1, topicV1, sampleLine("V1", 1, 1))
	c.wantPuback(1, 0)
	f.login(t, plain, 4).wantPong()
	stray := dialRaw(t, l.Addr().String(), 4)
	stray.write(packet(0x10, field("MQTT"), []byte{4, 2, 0, 30}, field("id")))
	for err == nil {
		_, _, err = stray.tryRead()
	}
	f.wantMetric(t, 1, "carstate_mqtt_connections_refused_total", "reason", "no_connect")

	testkit.NoError(t, m.Shutdown(shutdownContext(t)))
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: got %v, want %v", err, net.ErrClosed)
	}
}

// heldBack sends what was written while wait was set together with what is written next.
type heldBack struct {
	net.Conn
	wait bool
	text []byte
}

func (h *heldBack) Write(p []byte) (int, error) {
	if h.text = append(h.text, p...); h.wait {
		return len(p), nil
	}
	_, err := h.Conn.Write(h.text)
	h.text = nil
	return len(p), err
}

// crypto/tls returns the bytes and the end together.
func TestMQTT_PublishAtTheEndOfTLS(t *testing.T) {
	f := newFixture(t)
	config := f.useTLS(t)
	config.MaxVersion = tls.VersionTLS12
	m, _ := startMQTT(t, f.Config)
	l := testkit.Listen(t)
	go func() { _ = m.ServeTLS(l) }()
	h := &heldBack{Conn: testkit.Dial(t, l.Addr().String())}
	conn := tls.Client(h, config)
	c := (&rawClient{t, 4, "id", conn, bufio.NewReader(conn)}).logIn("car", f.key)
	h.wait = true
	c.publish(0, 0, topicV1, sampleLine("V1", 1, 1))
	h.wait = false
	testkit.NoError(t, conn.CloseWrite())
	testkit.Await(t, "the sample is accepted", func() bool { return f.metric(t, ingest.MetricAccepted) == 1 })
}

func TestMQTTStrangerThatStalls(t *testing.T) {
	m, _ := startMQTT(t, newFixture(t).Config)
	for _, said := range []string{"", "\x10", "\x10\x80"} {
		here, there := net.Pipe()
		go func() { _, _ = there.Write([]byte(said)) }()
		if err := m.ReadConnect(here, 20*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %q: got error %v, want a time-out", said, err)
		}
		_ = here.Close()
		_ = there.Close()
	}
}
