package main_test

import (
	"net"
	"regexp"
	"strings"
	"testing"

	"example.org/carstate/internal/testkit"
)

// The commands of docs/metrics.md count the connections of each client.
func TestWhoIsConnected(t *testing.T) {
	commands := regexp.MustCompile("`(ss [^`]*)`").FindAllStringSubmatch(readFile(t, "../../docs/metrics.md"), -1)
	if len(commands) == 0 {
		t.Fatal("docs/metrics.md does not ask ss")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer l.Close()
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		testkit.NoError(t, err)
		defer c.Close()
		served, err := l.Accept()
		testkit.NoError(t, err)
		defer served.Close()
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	testkit.NoError(t, err)
	for _, c := range commands {
		if !strings.Contains(c[1], ":8080") {
			t.Errorf("%s asks for another port", c[1])
		}
		out := tool(t, "", "sh", "-c", strings.ReplaceAll(c[1], ":8080", ":"+port))
		if strings.Join(strings.Fields(out), " ") != "3 127.0.0.1" {
			t.Errorf("%s prints %q", c[1], out)
		}
	}
}
