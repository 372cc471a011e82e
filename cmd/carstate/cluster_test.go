package main_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"example.org/carstate/internal/store/cluster"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

func TestNATSConfig(t *testing.T) {
	startsPrograms(t)
	const password = "inTheTestOnly"
	t.Setenv("NATS_PASSWORD", password)
	t.Setenv("NATS_NAME", "nats-1")
	for i := range 3 {
		t.Setenv(fmt.Sprintf("NATS_ROUTE_%d", i+1), fmt.Sprintf("nats-route://route:%s@nats-%d:6222", password, i+1))
	}
	var urls []string
	var routes []string
	for i := range 3 {
		o, err := nats.ProcessConfigFile(deployDir + "/nats/nats.conf")
		testkit.NoError(t, err)
		if !o.SyncAlways || o.StoreDir != "/data" || len(o.Routes) != 3 || o.Cluster.Port != 6222 || o.Port != 4222 {
			t.Fatalf("nats.conf: got %+v, want sync_always, /data, 3 routes and the ports 6222 and 4222", o)
		}
		o.ServerName, o.StoreDir, o.NoSigs = fmt.Sprintf("nats-%d", i+1), t.TempDir(), true
		o.Host, o.Port, o.Cluster.Host, o.Cluster.Port = "127.0.0.1", -1, "127.0.0.1", -1
		o.Routes = nats.RoutesFromStr(strings.Join(routes, ","))
		s, err := nats.NewServer(o)
		testkit.NoError(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(time.Minute) {
			t.Fatalf("%s: got no start within a minute, want one", o.ServerName)
		}
		routes = append(routes, fmt.Sprintf("nats-route://route:%s@%s", password, s.ClusterAddr()))
		urls = append(urls, fmt.Sprintf("nats://carstate:%s@%s", password, s.Addr().(*net.TCPAddr)))
	}
	dir := t.TempDir()
	flags := []string{"--nats", strings.Join(urls, ","), "--partitions", "4", "--max-age", "24h"}
	var p *process
	// Until the servers have elected a leader, the node exits, and a supervisor would start it
	// again.
	testkit.NoError(t, until(testkit.Patience, func() (err error) {
		p, err = startProcess(dir, nil, flags...)
		return err
	}))
	t.Cleanup(p.Kill)
	drivesAndAnswers(t, p)
	if strings.Contains(p.log.String(), password) {
		t.Errorf("the log: got the password, want it nowhere:\n%s", p.log)
	}
	p.stop(t)
	stranger := strings.Replace(urls[0], password, "guess", 1)
	if _, err := startProcess(t.TempDir(), nil, "--nats", stranger); err == nil ||
		strings.Contains(err.Error(), "guess") || !strings.Contains(err.Error(), "carstate ended with") {
		t.Errorf("a wrong password: got %v, want that carstate ended, without the password", err)
	}
}

// authority is a CA for localhost, because real servers have host names.
func authority(t *testing.T) (ca string, issue func(dir string) (cert, key string)) {
	t.Helper()
	write := func(file, kind string, der []byte) string {
		testkit.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	must := func(err error) {
		testkit.NoError(t, err)
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &caKey.PublicKey, caKey)
	must(err)
	return write(filepath.Join(t.TempDir(), "ca.pem"), "CERTIFICATE", der), func(dir string) (cert, key string) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: root.NotBefore, NotAfter: root.NotAfter,
			DNSNames:    []string{"localhost"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, root, &own.PublicKey, caKey)
		must(err)
		keyDER, err := x509.MarshalPKCS8PrivateKey(own)
		must(err)
		return write(filepath.Join(dir, "cert.pem"), "CERTIFICATE", der),
			write(filepath.Join(dir, "key.pem"), "PRIVATE KEY", keyDER)
	}
}

// With the permissions in the file that we ship, nodes with one role each do everything, and a
// server loads a renewed certificate.
func TestNATSConfigWithTLS(t *testing.T) {
	t.Parallel()
	startsPrograms(t)
	const password = "inTheTestOnly"
	ca, issue := authority(t)
	elsewhere, _ := authority(t)
	file, err := filepath.Abs(filepath.Join(deployDir, "nats", "nats-tls.conf"))
	testkit.NoError(t, err)
	dirs := make([]string, 3)
	configure := func(_ testing.TB, dir string, i int, clients, routes []string) clustertest.Setup {
		dirs[i] = dir
		cert, key := issue(dir)
		host, port, err := net.SplitHostPort(clients[i])
		testkit.NoError(t, err)
		env := []string{fmt.Sprintf("NATS_NAME=nats-%d", i+1), "NATS_HOST=localhost", "NATS_CERT=" + cert,
			"NATS_KEY=" + key, "NATS_CA=" + ca, "NATS_STORE=" + dir, "NATS_PASSWORD=" + password}
		for n, r := range routes {
			env = append(env, fmt.Sprintf("NATS_ROUTE_%d=nats-route://%s", n+1, byName(r)))
		}
		// On one machine, not all can use the ports in the file.
		return clustertest.Setup{Args: []string{"--config", file, "--addr", host, "--port", port, "--cluster",
			"nats://" + routes[i]}, Env: env}
	}
	c := clustertest.StartClusterWith(t, configure,
		func(addr string) string { return "tls://carstate:" + password + "@" + byName(addr) }, natsgo.RootCAs(ca))
	env := append(os.Environ(), "SSL_CERT_FILE="+ca)
	nodes := make(map[string]*process)
	begin := func(role, dir string) {
		t.Helper()
		p, err := startProcess(dir, env, "--nats", c.URLs(), "--partitions", "4", "--max-age", "24h", "--roles", role)
		testkit.NoError(t, err)
		t.Cleanup(p.Kill)
		nodes[role] = p
	}
	roles := []string{"derive", "admin", "ingest", "query"}
	for _, role := range roles {
		begin(role, t.TempDir())
	}
	var logs []*testkit.Buffer
	operates(t, nodes)
	for _, role := range roles {
		p := nodes[role]
		p.stop(t)
		logs = append(logs, p.log)
		begin(role, p.Dir)
	}
	renews(t, c, ca, func() { issue(dirs[0]) })
	operator := nodes["admin"]
	operator.carstate(t, "token", "list")
	operator.carstate(t, "backup", filepath.Join(t.TempDir(), "after.backup"))
	for _, role := range roles {
		nodes[role].stop(t)
		logs = append(logs, nodes[role].log)
	}
	for _, log := range logs {
		if text := log.String(); strings.Contains(text, password) || strings.Contains(strings.ToLower(text), "violation") {
			t.Errorf("the log: got the password or a violation, want neither:\n%s", text)
		}
	}
	for _, n := range c.Nodes {
		if n.Said("Violation") > 0 {
			t.Errorf("%s: got %d violations, want 0", n.Name, n.Said("Violation"))
		}
		if n.Said("route handshake error") > 0 {
			t.Errorf("%s: got %d errors of route handshakes, want 0", n.Name, n.Said("route handshake error"))
		}
	}
	for _, urls := range []string{strings.ReplaceAll(c.URLs(), "tls://", "nats://"), c.URLs()} {
		for file, want := range map[string]string{
			"":              "cannot be reached: set SSL_CERT_FILE to",
			"/no/such/file": "the file that SSL_CERT_FILE names cannot be read",
			elsewhere:       "is SSL_CERT_FILE the certificate of",
		} {
			env := append(os.Environ(), "SSL_CERT_FILE="+file)
			if _, err := startProcess(t.TempDir(), env, "--nats", urls); err == nil || !strings.Contains(err.Error(), want) ||
				strings.Contains(err.Error(), password) {
				t.Errorf("a node with SSL_CERT_FILE=%s: got %v, want %q without the password", file, err, want)
			}
		}
	}
}

func byName(addr string) string { return strings.Replace(addr, "127.0.0.1", "localhost", 1) }

func drivesAndAnswers(t *testing.T, p *process) {
	t.Helper()
	token := p.issue(t)
	p.carstate(t, "replay", demoDrive, "--vid", "clustered")
	testkit.NoError(t, until(time.Minute, func() error {
		a, err := p.ask(drivingPath, token, "clustered")
		if err == nil && a.Status != 1 {
			err = fmt.Errorf("no answer: %+v", a)
		}
		return err
	}))
	if list := p.carstate(t, "vehicles", "--prefix", "clus"); !strings.Contains(list, "\nclustered ") {
		t.Errorf("vehicles --prefix clus: got\n%s\nwant clustered", list)
	}
}

func operates(t *testing.T, nodes map[string]*process) {
	t.Helper()
	do := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(plain, args...)
		cmd.Env = append(nodes["admin"].env(),
			"CARSTATE_INGEST_ADDR="+nodes["ingest"].Address(nodeprocess.Ingest),
			"CARSTATE_QUERY_ADDR="+nodes["query"].Address(nodeprocess.Query))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("carstate %s: got %v, want no error\n%s", strings.Join(args, " "), err, &stderr)
		}
		return strings.TrimSpace(string(out))
	}
	dir := t.TempDir()
	many := filepath.Join(dir, "many")
	var list strings.Builder
	for i := range 1000 { // more than one stored record has
		fmt.Fprintf(&list, "Many%d\n", i)
	}
	testkit.NoError(t, os.WriteFile(many, []byte(list.String()), 0o600))

	token := do("token", "issue", "--developer", "Ada", "--vehicles", "all")
	var narrow struct{ ID string }
	testkit.NoError(t, json.Unmarshal([]byte(do("token", "issue", "--developer", "Bo", "--vehicles", "@"+many, "--json")),
		&narrow))
	do("token", "grant", narrow.ID, "--remove", "Many1")
	do("token", "grant", narrow.ID, "--add", "byHTTP,byMQTT")
	do("source", "add", "gateway", "--vehicles", "@"+many)
	do("source", "rotate", "gateway", "--overlap", "1h")
	do("replay", demoDrive, "--vid", "byHTTP")
	do("replay", demoDrive, "--vid", "byMQTT", "--mqtt-url", "mqtt://"+nodes["ingest"].Address(nodeprocess.MQTT))
	answers := func(vid string, status int) {
		t.Helper()
		if err := until(time.Minute, func() error {
			driving, err1 := nodes["query"].ask(drivingPath, token, vid)
			throttle, err2 := nodes["query"].ask(throttlePath, token, vid)
			err := errors.Join(err1, err2)
			if err == nil && (driving.Status != status || throttle.Status != status) {
				err = fmt.Errorf("%+v, %+v", driving, throttle)
			}
			return err
		}); err != nil {
			t.Errorf("%s: got %v, want status %d for both operations", vid, err, status)
		}
	}
	answers("byHTTP", 1)
	answers("byMQTT", 1)
	do("explain", "byHTTP")

	do("operator", "add", "ada")
	do("operator", "rotate", "ada")
	do("operator", "remove", "ada")
	do("operator", "rotate-admin-key")
	backup := filepath.Join(dir, "a.backup")
	do("backup", backup)
	do("forget", "byHTTP")
	answers("byHTTP", 0)
	do("restore", "--compare", backup)
	do("forget", "byMQTT")
	answers("byHTTP", 0)
	answers("byMQTT", 0)
	do("token", "show", narrow.ID)
	do("token", "rotate", narrow.ID, "--overlap", "0s")
	do("token", "revoke", narrow.ID)
	do("source", "remove", "gateway")
	do("source", "list")
}

func renews(t *testing.T, c *clustertest.Cluster, ca string, renew func()) {
	t.Helper()
	serial := func() (string, error) {
		nc, err := natsgo.Connect(strings.Split(c.URLs(), ",")[0], natsgo.RootCAs(ca), natsgo.DontRandomize(),
			natsgo.Timeout(30*time.Second))
		if err != nil {
			return "", err
		}
		defer nc.Close()
		state, err := nc.TLSConnectionState()
		if err != nil {
			return "", err
		}
		return state.PeerCertificates[0].SerialNumber.String(), nil
	}
	before, err := serial()
	testkit.NoError(t, err)
	renew()
	c.Nodes[0].Reload()
	testkit.NoError(t, until(time.Minute, func() error {
		if n := c.Nodes[0]; n.Said("Failed to reload") > 0 {
			t.Fatal("the configuration: got a failure, want it read again")
		}
		now, err := serial()
		if err == nil && now == before {
			err = errors.New("the old certificate is shown")
		}
		return err
	}))
}

func openCluster(t *testing.T, c cluster.Config) *cluster.Engine {
	t.Helper()
	e, err := cluster.Open(t.Context(), c)
	return testkit.Opened(t, e, err)
}
