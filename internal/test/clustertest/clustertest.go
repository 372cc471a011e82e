// Package clustertest starts real NATS servers for tests, each as a process of its own:
//
//	url := clustertest.Account(t) // an empty account on a NATS server
//
// The server of [Account] is shared by the tests of the process, and runs until [End].
// [StartServer] starts a server that the test may stop and start again. [StartCluster] starts three
// servers that the test may kill, pause and resume. The TestMain of a package that uses any of them
// calls [End] after its tests.
package clustertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/test/testkit"
)

const sharedAccounts = 100

var shared struct {
	sync.Mutex
	servers []*Process
	used    int // number of accounts that tests have received, of all servers
}

// Account returns the URL of an empty account on a server that syncs every write. A server's start
// takes far longer than most tests, so the tests of a process share one, and another once its
// accounts are used.
func Account(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.used == sharedAccounts*len(shared.servers) {
		var config strings.Builder
		config.WriteString(plainJetStream + "\naccounts {\n")
		for i := range sharedAccounts {
			fmt.Fprintf(&config, "test%d { jetstream: enabled, users: [ { user: test%d, password: secret } ] }\n", i, i)
		}
		config.WriteString("}")
		shared.servers = append(shared.servers, launch(t, config.String()))
	}
	n := shared.used % sharedAccounts
	shared.used++
	return fmt.Sprintf("nats://test%d:secret@%s", n, shared.servers[len(shared.servers)-1].Addr)
}

// End ends the servers of [Account] and removes the binary that this package has built.
func End() {
	shared.Lock()
	defer shared.Unlock()
	for _, p := range shared.servers {
		p.server.Kill()
		p.remove()
	}
	removeBinary()
}

// StartServer starts one server with JetStream that syncs every write, as an operator would
// configure it.
func StartServer(t testing.TB) *Process {
	t.Helper()
	return StartProcess(t, plainJetStream)
}

// The storage limit is larger than the disk. The default, three quarters of the free space, is soon
// too small, because the server counts the limits of carstate's streams and not their bytes.
const plainJetStream = "jetstream { sync_interval: always, max_file_store: 1PB }"

// JetStream is for managing the streams at urls until the test ends.
func JetStream(t testing.TB, urls string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(urls, opts...)
	testkit.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	testkit.NoError(t, err)
	return js
}
