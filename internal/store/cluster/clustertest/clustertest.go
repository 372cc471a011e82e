// Package clustertest starts real NATS servers for tests, each as a process of its own:
//
//	url := clustertest.External(t) // a NATS server that ends with the test
//
// [StartServer] starts a server that the test may stop and start again. [StartCluster] starts three
// servers that the test may kill, pause and resume. The TestMain of a package that uses any of them
// calls [RemoveServerBinary] at the end.
package clustertest

import "testing"

// External starts a NATS server on a free port of the loopback address, configured as an operator
// would configure it, and returns its URL.
func External(t testing.TB) string {
	t.Helper()
	return StartServer(t).URL()
}

// StartServer starts one server with JetStream that syncs every write. The server is killed when
// the test ends.
func StartServer(t testing.TB) *Process {
	t.Helper()
	return StartProcess(t, "jetstream { sync_interval: always, max_file_store: 1TB }")
}
