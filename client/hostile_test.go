//go:build go1.26

package client

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const right = `{"code":200,"msg":"success","data":{"vid":"Car1","status":1,"vehicle_runing_state":"3"}}`

func endlessly(piece string, every time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		for _, err := io.WriteString(c, piece); err == nil; _, err = io.WriteString(c, piece) {
			if every > 0 {
				time.Sleep(every)
			}
		}
	}
}

// The server tries to block a client, fill its memory or keep it busy. The clock is fake.
func TestHostileServer(t *testing.T) {
	says := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, text)
		}
	}
	then := func(fs ...func(net.Conn)) func(net.Conn) {
		return func(c net.Conn) {
			for _, f := range fs {
				f(c)
			}
		}
	}
	const head = "HTTP/1.1 200 OK\r\n"
	var bomb bytes.Buffer
	packer := gzip.NewWriter(&bomb)
	if _, err := packer.Write(make([]byte, 8<<20)); errors.Join(err, packer.Close()) != nil {
		t.Fatalf("8 MiB of zeros: got a failure, %v, want them packed", err)
	}
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		want  error // nil: an answer
		most  time.Duration
		tries int
	}{
		{"says nothing", endlessly("", time.Second), ErrUnreachable, 31 * time.Second, 3},
		{"a header that drips", then(says(head+"X: "), endlessly("x", time.Second)),
			ErrUnreachable, 31 * time.Second, 3},
		{"a header without an end", then(says(head), endlessly("X: "+strings.Repeat("x", 1000)+"\r\n", 0)),
			ErrUnreachable, time.Second, 1},
		{"interim answers without an end", endlessly("HTTP/1.1 103 Early Hints\r\n\r\n", 0),
			ErrUnreachable, time.Second, 1},
		{"a body that drips", then(says(head+"\r\n"), endlessly(" ", time.Second)),
			ErrUnreachable, 31 * time.Second, 3},
		{"a body without an end", then(says(head+"\r\n"), endlessly(strings.Repeat(" ", 1000), 0)),
			ErrBadAnswer, time.Second, 1},
		{"a refusal without an end",
			then(says("HTTP/1.1 401 Unauthorized\r\n\r\n"), endlessly(strings.Repeat(" ", 1000), 0)),
			ErrBadAnswer, time.Second, 1},
		{"an outage without an end",
			then(says("HTTP/1.1 503 Unavailable\r\n\r\n"), endlessly(strings.Repeat(" ", 1000), 0)),
			ErrBadAnswer, time.Second, 1},
		{"chunks without an end", then(says(head+"Transfer-Encoding: chunked\r\n\r\n"), endlessly("1\r\n \r\n", 0)),
			ErrBadAnswer, time.Second, 1},
		{"a gzip bomb",
			says(fmt.Sprintf(head+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", bomb.Len(), &bomb)),
			ErrBadAnswer, time.Second, 1},
		{"another encoding", says(head + "Content-Encoding: br\r\nContent-Length: 5\r\n\r\nhello"),
			ErrBadAnswer, time.Second, 1},
		{"a wait of an age",
			says("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n"),
			ErrRateLimited, time.Second, 1},
		{"a wait until an age",
			says("HTTP/1.1 503 Unavailable\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n" +
				"Content-Length: 0\r\n\r\n"),
			ErrUnavailable, time.Second, 1},
		{"nested without an end", then(says(head+"\r\n"), endlessly("[", 0)), ErrBadAnswer, time.Second, 1},
		{"another protocol", says("SSH-2.0-OpenSSH_9.2\r\n"), ErrUnreachable, time.Second, 1},
		{"another content type",
			says(fmt.Sprintf(head+"Content-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", len(right), right)),
			nil, time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				var serving sync.WaitGroup
				defer serving.Wait()
				own := New("http://cars.example", "cst_secret")
				transport := own.http.Transport.(*http.Transport)
				transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					tries++
					near, far := net.Pipe()
					serving.Go(func() {
						defer far.Close()
						if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
							// This read notices when the client closes the connection.
							go func() { _, _ = io.Copy(io.Discard, far) }()
							c.serve(far)
						}
					})
					return near, nil
				}
				begin := time.Now()
				a, err := own.CarDrivingState(t.Context(), "Car1")
				own.http.CloseIdleConnections()
				if took := time.Since(begin); took > c.most || tries != c.tries {
					t.Errorf("got %d tries in %s, want %d in at most %s", tries, took, c.tries, c.most)
				}
				if !errors.Is(err, c.want) || err == nil && a.State != TrafficJam {
					t.Errorf("got %v and error %v, want error %v", a, err, c.want)
				}
			})
		})
	}
}
