package main_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// Hostile text is in everything that a stranger can choose, at every listener, with the log level
// debug.
func TestNobodyForgesLog(t *testing.T) {
	startsPrograms(t)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			cert, key, _ := testkit.Certificate(t)
			dir := t.TempDir()
			p, err := startProcess(dir, os.Environ(), "--log-format", format, "--log-level", "debug", "--tls-cert", cert,
				"--tls-key", key, "--mqtt-tls-addr", "127.0.0.1:0")
			testkit.NoError(t, err)
			t.Cleanup(p.Kill)
			escaped := "%0a%0dtime=now%20level=ERROR%20msg=forged%1b%5b2J%9b31m"
			header := "forged\x1b[2J\x9b31m"
			for _, door := range []string{"query-addr", "ingest-addr", "mqtt-addr", "mqtt-tls-addr", "admin-addr"} {
				for _, sent := range []string{
					testkit.Hostile,
					"GET /" + escaped + "?access_token=" + escaped + "&vid=" + escaped + " HTTP/1.1\r\nHost: " + header +
						"\r\nUser-Agent: " + header + "\r\n\r\n",
					"POST /v1/telemetry HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + header + "\r\nContent-Type: " + header +
						"\r\nContent-Length: 5\r\n\r\n" + "forge",
					"POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + header + "\r\nX-Forwarded-For: " +
						header + "\r\nContent-Length: 0\r\n\r\n",
					"PUT /v1/sources/" + escaped + " HTTP/9.9\r\nTransfer-Encoding: " + header + "\r\n\r\n",
					"\x10\x2f\x00\x04MQTT\x04\xc2\x00\x3c\x00\x0bforged\n\x1b[2J\x00\x09forged\n\x1b[\x00\x09forged\n\x1b[",
					"\x16\x03\x01\x00\x05forge",
				} {
					throw(t, p.Address(door), sent)
				}
			}
			admin := &http.Client{Timeout: 20 * time.Second}
			for _, body := range []string{`{"developer":"Ada\nlevel=ERROR msg=forged\u001b[2J"}`, `{"forged\n\u001b":1}`} {
				req, err := http.NewRequest(http.MethodPost, p.URL(nodeprocess.Admin)+"/v1/tokens", strings.NewReader(body))
				testkit.NoError(t, err)
				req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(readFile(t, dir+"/admin.key")))
				req.Header.Set("Content-Type", "application/json")
				resp, err := admin.Do(req)
				testkit.NoError(t, err)
				resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%s: got %s, want 400", body, resp.Status)
				}
			}
			p.carstate(t, "source", "add", "gateway-1", "--vehicles", "all")
			p.stop(t)
			text := p.log.String()
			testkit.CheckLog(t, format, text)
			if strings.Contains(text, "forged") || strings.Contains(text, "owned") {
				t.Errorf("the log: got what was sent, want it nowhere:\n%s", text)
			}
			if !strings.Contains(text, "DEBUG") || !strings.Contains(text, "gateway-1") {
				t.Errorf("the log: got\n%s\nwant all of it, with DEBUG and gateway-1", text)
			}
		})
	}
}

func throw(t *testing.T, addr, sent string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	testkit.NoError(t, err)
	defer c.Close()
	if _, err := io.WriteString(c, sent); err != nil {
		return // the server closed it before it had read all
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.Copy(io.Discard, c)
}

// The line of a query has neither the token nor the vehicle. SIGHUP opens a renamed file again.
func TestAccessLogOfANode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	p := start(t, filepath.Join(t.TempDir(), "data"), "--access-log", file)
	token := p.issue(t)
	ask := func() {
		t.Helper()
		_, err := p.ask(drivingPath, token, "NobodyKnowsMe")
		testkit.NoError(t, err)
	}
	holds := func(name string) func() bool {
		return func() bool {
			text, err := os.ReadFile(name)
			return err == nil && strings.Count(string(text), `"outcome":"unknown"`) == 1
		}
	}
	ask()
	testkit.Await(t, "the first line is written", holds(file))
	testkit.NoError(t, os.Rename(file, file+".1"))
	testkit.NoError(t, p.Signal(syscall.SIGHUP))
	testkit.Await(t, "the file is made again", func() bool { _, err := os.Stat(file); return err == nil })
	ask()
	testkit.Await(t, "the second line is written", holds(file))
	if !holds(file + ".1")() {
		t.Error("the renamed file: got another line after that, want one in all")
	}
	p.stop(t)
	if text := readFile(t, file) + readFile(t, file+".1"); strings.Contains(text, token) ||
		strings.Contains(text, "NobodyKnowsMe") || strings.Count(text, `"outcome":"unknown"`) != 2 {
		t.Errorf("both files: got\n%s\nwant two lines, without the token and the vehicle", text)
	}
}
