package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/internal/testkit"
)

// oneRecord matches a line of slog's text handler. After the time, the line has only names with
// plain or quoted values.
var oneRecord = regexp.MustCompile(`^time=\S+ level=(DEBUG|INFO|WARN|ERROR) msg=(\S+|"([^"\\]|\\.)*")( ` +
	`[\w.]+=([^\s"]*|"([^"\\]|\\.)*"))*$`)

// checkLog checks that every line is a complete record and has no characters that control a
// terminal.
func checkLog(t *testing.T, format, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Error("the log is not UTF-8")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if format == "json" {
			var record map[string]any
			if err := json.Unmarshal([]byte(line), &record); err != nil || record["level"] == nil {
				t.Errorf("no record: %q", line)
			}
		} else if !oneRecord.MatchString(line) {
			t.Errorf("no record: %q", line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a line with control characters: %q", line)
		}
	}
}

// nasty is a text with which an attacker would forge a line of the log or control the operator's
// terminal.
const nasty = "x\n\rtime=2026-11-20T04:00:00Z level=ERROR msg=" +
	"forged\x1b[2J\x1b]0;owned\a\u009b31m\u202e\u2028\x00\x7f\"'\\"

// TestLogIsClean checks that secrets, vids and control characters do not get into the log, in every
// way of logging that slog has.
func TestLogIsClean(t *testing.T) {
	token, _ := access.NewSecret(access.TokenKind)
	adminKey, _ := access.NewSecret(access.AdminKind)
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, _ := newLogger(&out, "debug", format)
		log.Info(nasty, "text", nasty, "error", errors.New(nasty), "any", []string{nasty, token})
		log.With("token", token).WithGroup("g").Warn("to "+adminKey, "error",
			fmt.Errorf("GET /?access_token=%s: %w", token, errors.New(adminKey)))
		log.Debug("the record state.3.NHeN4UqVsohGS55I7LBdh", "error", errors.New("state.12.NHeN4UqVsohGS55I7LBdh: gone"))
		log.Error("invalid", "bytes", "\xff\xfe\x9b")
		text := out.String()
		checkLog(t, format, text)
		if n := strings.Count(text, "\n"); n != 4 {
			t.Errorf("%d lines, want 4:\n%s", n, text)
		}
		for _, secret := range []string{token[4:], adminKey[4:], "NHeN4UqVsohGS55I7LBdh"} {
			if strings.Contains(text, secret) {
				t.Errorf("the log holds %q:\n%s", secret, text)
			}
		}
		hashes := regexp.MustCompile(`state\.\d+\.(~[0-9a-f]{12})`).FindAllStringSubmatch(text, -1)
		if len(hashes) != 2 || hashes[0][1] != hashes[1][1] {
			t.Errorf("the vehicle is not named by its hash: %q", hashes)
		}
		if other, _ := newLogger(&out, "debug", format); other != nil {
			out.Reset()
			other.Debug("state.3.NHeN4UqVsohGS55I7LBdh")
			if strings.Contains(out.String(), hashes[0][1]) {
				t.Error("another process gives the vehicle the same hash")
			}
		}
	}
}

// TestNobodyForgesLog checks that clients cannot forge lines of the log. It sends hostile text in
// everything that an unknown client can choose, to every listener of a service that logs at level
// debug.
func TestNobodyForgesLog(t *testing.T) {
	startsPrograms(t)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			cert, key, _ := testkit.Certificate(t)
			dir := t.TempDir()
			p, err := startProcess(dir, os.Environ(), "--log-format", format, "--log-level", "debug", "--tls-cert", cert,
				"--tls-key", key, "--mqtt-tls-addr", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Kill)
			escaped := "%0a%0dtime=now%20level=ERROR%20msg=forged%1b%5b2J%9b31m"
			header := "forged\x1b[2J\x9b31m"
			for _, door := range []string{"query-addr", "ingest-addr", "mqtt-addr", "mqtt-tls-addr", "admin-addr"} {
				for _, sent := range []string{
					nasty,
					"GET /" + escaped + "?access_token=" + escaped + "&vid=" + escaped + " HTTP/1.1\r\nHost: " + header +
						"\r\nUser-Agent: " + header + "\r\n\r\n",
					"POST /v1/telemetry HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + header + "\r\nContent-Type: " + header +
						"\r\nContent-Length: 5\r\n\r\n" + "forge",
					"POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + header + "\r\nX-Forwarded-For: " +
						header + "\r\nContent-Length: 0\r\n\r\n",
					"PUT /v1/sources/" + escaped + " HTTP/9.9\r\nTransfer-Encoding: " + header + "\r\n\r\n",
					// MQTT: a CONNECT with hostile client identifier, user name and password.
					"\x10\x2f\x00\x04MQTT\x04\xc2\x00\x3c\x00\x0bforged\n\x1b[2J\x00\x09forged\n\x1b[\x00\x09forged\n\x1b[",
					"\x16\x03\x01\x00\x05forge",
				} {
					throw(t, p.Address(door), sent)
				}
			}
			admin := &http.Client{Timeout: 20 * time.Second}
			for _, body := range []string{`{"developer":"Ada\nlevel=ERROR msg=forged\u001b[2J"}`, `{"forged\n\u001b":1}`} {
				req, err := http.NewRequest(http.MethodPost, p.URL(nodeprocess.Admin)+"/v1/tokens", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(readFile(t, dir+"/admin.key")))
				req.Header.Set("Content-Type", "application/json")
				resp, err := admin.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%s: %s", body, resp.Status)
				}
			}
			p.carstate(t, "source", "add", "gateway-1", "--vehicles", "all")
			p.stop(t)
			text := p.log.String()
			checkLog(t, format, text)
			if strings.Contains(text, "forged") || strings.Contains(text, "owned") {
				t.Errorf("what was sent is in the log:\n%s", text)
			}
			if !strings.Contains(text, "DEBUG") || !strings.Contains(text, "gateway-1") {
				t.Errorf("that is not all of the log:\n%s", text)
			}
		})
	}
}

// throw sends bytes and waits until the server closes the connection.
func throw(t *testing.T, addr, sent string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, sent); err != nil {
		return // the server closed it before it had read all
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.Copy(io.Discard, c)
}
