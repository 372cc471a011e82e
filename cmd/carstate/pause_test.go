package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func TestRevokedDuringPause(t *testing.T) {
	t.Parallel()
	servers := clustertest.StartServer(t)
	const maxFeedAge = 3 * time.Second
	node := func() *process {
		return start(t, t.TempDir(), "--nats", servers.URL(), "--partitions", "2", "--max-feed-age", maxFeedAge.String())
	}
	operator, paused := node(), node()
	for round := range 3 {
		var issued wire.IssuedToken
		testkit.NoError(t, json.Unmarshal([]byte(operator.carstate(t, "token", "issue", "--developer", "Ada", "--vehicles", "all",
			"--json")), &issued))
		token := issued.AccessToken
		testkit.NoError(t, until(time.Minute, func() error {
			a, err := paused.ask(drivingPath, token, "car")
			if err == nil && a.HTTP != http.StatusOK {
				err = fmt.Errorf("%+v", a)
			}
			return err
		}))
		open := keepAlive(t, paused, token)

		testkit.NoError(t, paused.Signal(syscall.SIGSTOP))
		began := time.Now()
		operator.carstate(t, "token", "revoke", issued.ID)
		testkit.NoError(t, until(time.Minute, func() error {
			if time.Since(began) <= maxFeedAge {
				return errors.New("the pause is not long enough")
			}
			return nil
		}))
		for _, c := range open {
			testkit.NoError(t, c.ask())
		}
		testkit.NoError(t, paused.Signal(syscall.SIGCONT))
		for i, c := range open {
			code, err := c.answer()
			testkit.NoError(t, err)
			if code == http.StatusOK {
				t.Errorf("round %d: a revoked token: got 200 %s after the pause, on connection %d, want it refused",
					round, time.Since(began), i)
			}
			c.Close()
		}
		testkit.NoError(t, until(time.Minute, wants(paused.URL(nodeprocess.Admin)+"/readyz", http.StatusOK)))
	}
}

type asker struct {
	net.Conn
	in       *bufio.Reader
	question string
}

func keepAlive(t *testing.T, p *process, token string) (all []*asker) {
	t.Helper()
	for range 64 {
		var a *asker
		// After a stall of the machine, the copies may be too old.
		testkit.NoError(t, until(time.Minute, func() error {
			c, err := net.Dial("tcp", p.Address(nodeprocess.Query))
			if err != nil {
				return err
			}
			a = &asker{c, bufio.NewReader(c), "GET " + drivingPath + "?" +
				url.Values{"access_token": {token}, "vid": {"car"}}.Encode() + " HTTP/1.1\r\nHost: a\r\n\r\n"}
			code, err := 0, a.ask()
			if err == nil {
				code, err = a.answer()
			}
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("HTTP %d", code)
			}
			if err != nil {
				c.Close()
			}
			return err
		}))
		all = append(all, a)
	}
	return all
}

func (a *asker) ask() error {
	if err := a.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	_, err := io.WriteString(a, a.question)
	return err
}

func (a *asker) answer() (code int, err error) {
	resp, err := http.ReadResponse(a.in, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
