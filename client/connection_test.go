//go:build go1.26

package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/client"
)

func TestBaseURL_Invalid(t *testing.T) {
	for _, base := range []string{
		"", "cars.example", "127.0.0.1:8080", "ftp://cars.example", "http://", "http://:8080", "http://ca rs", "/api",
		"https://cars.example/%zz",
		"https://user:" + token + "@cars.example", "https://cars.example/?access_token=" + token,
		"https://cars.example/?", "https://cars.example/#x",
	} {
		c := client.New(base, token)
		_, err := c.CarDrivingState(t.Context(), "Car1")
		if !errors.Is(err, client.ErrBaseURL) {
			t.Errorf("%q: got error %v, want ErrBaseURL", base, err)
		}
		mustBeClean(t, err)
		mustHide(t, c.String())
		if !strings.Contains(c.String(), "no usable address") {
			t.Errorf("%q: got the client %s, want it without a usable address", base, c)
		}
	}
	c := client.New("https://cars.example", token)
	var none context.Context
	if _, err := c.CarDrivingState(none, "Car1"); err == nil {
		t.Error("a nil context: got no error, want one")
	}
}

func TestContext_EndsCall(t *testing.T) {
	asked := make(chan struct{}, 2)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer service.Close()
	c := client.New(service.URL, token)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := c.CarDrivingState(ctx, "Car1")
	if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("got error %v, want context.Canceled alone", err)
	}
	mustBeClean(t, err)
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err = c.CarDrivingState(late, "Car1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want context.DeadlineExceeded", err)
	}
	mustBeClean(t, err)
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("a listener: got %v, want one", err)
	}
	l.Close()
	_, err = client.New("http://"+l.Addr().String(), token).ThrottleSystem(t.Context(), "Car1")
	if !errors.Is(err, client.ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got error %v, want ErrUnreachable and ECONNREFUSED", err)
	}
	mustBeClean(t, err)

	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	_, err = client.New(strings.Replace(plain.URL, "http:", "https:", 1), token).ThrottleSystem(t.Context(), "Car1")
	if !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("another protocol: got error %v, want ErrUnreachable", err)
	}
	mustBeClean(t, err)
}

func TestTimeout_OfOneAttempt(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer service.Close()
	c := client.New(service.URL, token, client.WithPatience(0),
		client.WithHTTPClient(&http.Client{Timeout: 10 * time.Millisecond}))
	_, err := c.ThrottleSystem(t.Context(), "Car1")
	if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "in time") {
		t.Errorf("got error %v, want ErrUnreachable with \"in time\"", err)
	}
	mustBeClean(t, err)
}

func TestCertificate(t *testing.T) {
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(jam))
	}))
	dials := 0 // written by the listener's goroutine, read after Close
	service.Config.ErrorLog = log.New(io.Discard, "", 0)
	service.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials++
		}
	}
	service.StartTLS()
	// A handshake on a busy machine may exceed a limit.
	strange := client.New(service.URL, token, client.WithHTTPClient(&http.Client{Transport: new(http.Transport)}))
	_, err := strange.CarDrivingState(t.Context(), "Car1")
	if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got error %v, want ErrUnreachable about the certificate", err)
	}
	mustBeClean(t, err)
	trusting := client.New(service.URL, token, client.WithHTTPClient(service.Client()))
	a, err := trusting.CarDrivingState(t.Context(), "Car1")
	if err != nil || a.State != client.TrafficJam {
		t.Errorf("got %v and error %v, want a traffic jam", a, err)
	}
	service.Close()
	if dials != 2 {
		t.Errorf("got %d connections, want 2", dials)
	}
}

func TestBrokenConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("a listener: got %v, want one", err)
	}
	defer l.Close()
	go func() {
		for _, answer := range []string{
			"", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + jam, "HTTP/1.1 200 OK\r\n\r\n" + jam,
		} {
			c, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(c))
			c.Write([]byte(answer))
			c.Close()
		}
	}()
	a, err := client.New("http://"+l.Addr().String(), token).CarDrivingState(t.Context(), "Car1")
	if err != nil || a.State != client.TrafficJam {
		t.Errorf("got %v and error %v, want a traffic jam", a, err)
	}
}
