package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"carstate/internal/stream/streamtest"
)

// TestNATSConfig starts three servers with the configuration that we ship, each
// on a port of its own, and a node on them: what it acknowledges is answered.
func TestNATSConfig(t *testing.T) {
	const password = "inTheTestOnly"
	t.Setenv("NATS_PASSWORD", password)
	for i := range 3 {
		t.Setenv(fmt.Sprintf("NATS_ROUTE_%d", i+1), fmt.Sprintf("nats-route://route:%s@nats-%d:6222", password, i+1))
	}
	var urls []string
	var routes []string
	for i := range 3 {
		o, err := nats.ProcessConfigFile(deployDir + "/nats/nats.conf")
		if err != nil {
			t.Fatal(err)
		}
		if !o.SyncAlways || o.StoreDir != "/data" || len(o.Routes) != 3 || o.Cluster.Port != 6222 || o.Port != 4222 {
			t.Fatalf("the configuration was not understood: %+v", o)
		}
		o.ServerName, o.StoreDir, o.NoSigs = fmt.Sprintf("nats-%d", i+1), t.TempDir(), true
		o.Host, o.Port, o.Cluster.Host, o.Cluster.Port = "127.0.0.1", -1, "127.0.0.1", -1
		o.Routes = nats.RoutesFromStr(strings.Join(routes, ","))
		s := streamtest.Serve(t, o)
		routes = append(routes, fmt.Sprintf("nats-route://route:%s@%s", password, s.ClusterAddr()))
		urls = append(urls, fmt.Sprintf("nats://carstate:%s@%s", password, s.Addr().(*net.TCPAddr)))
	}
	dir := t.TempDir()
	flags := []string{"--nats", strings.Join(urls, ","), "--partitions", "4", "--max-age", "24h"}
	var p *process
	// As its supervisor does: until the servers have chosen a leader, it ends.
	if err := until(2*time.Minute, func() (err error) {
		p, err = startProcess(dir, nil, flags...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	drivesAndAnswers(t, p)
	if strings.Contains(p.log.String(), password) {
		t.Errorf("the password is in the log:\n%s", p.log)
	}
	p.stop(t)
	// Nobody gets in with the node's name alone.
	stranger := strings.Replace(urls[0], password, "guess", 1)
	if _, err := startProcess(t.TempDir(), nil, "--nats", stranger); err == nil || strings.Contains(err.Error(), "guess") || !strings.Contains(err.Error(), "carstate ended with") {
		t.Errorf("with a wrong password: %v", err)
	}
}

// authority issues certificates for loopback.
func authority(t *testing.T) (ca string, issue func(dir string) (cert, key string)) {
	t.Helper()
	write := func(file, kind string, der []byte) string {
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &caKey.PublicKey, caKey)
	must(err)
	return write(filepath.Join(t.TempDir(), "ca.pem"), "CERTIFICATE", der), func(dir string) (cert, key string) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: root.NotBefore, NotAfter: root.NotAfter,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, root, &own.PublicKey, caKey)
		must(err)
		keyDER, err := x509.MarshalPKCS8PrivateKey(own)
		must(err)
		return write(filepath.Join(dir, "cert.pem"), "CERTIFICATE", der), write(filepath.Join(dir, "key.pem"), "PRIVATE KEY", keyDER)
	}
}

// Three servers with TLS are started with exactly the file that we ship, and a
// node works on them with the rights that it grants.
func TestNATSConfigWithTLS(t *testing.T) {
	const password = "inTheTestOnly"
	ca, issue := authority(t)
	elsewhere, _ := authority(t)
	file, err := filepath.Abs(filepath.Join(deployDir, "nats", "nats-tls.conf"))
	if err != nil {
		t.Fatal(err)
	}
	configure := func(_ testing.TB, dir string, i int, clients, routes []string) streamtest.Setup {
		cert, key := issue(dir)
		host, port, err := net.SplitHostPort(clients[i])
		if err != nil {
			t.Fatal(err)
		}
		env := []string{"NATS_CERT=" + cert, "NATS_KEY=" + key, "NATS_CA=" + ca, "NATS_STORE=" + dir, "NATS_PASSWORD=" + password}
		for n, r := range routes {
			env = append(env, fmt.Sprintf("NATS_ROUTE_%d=nats-route://%s", n+1, r))
		}
		// All on one machine, they cannot all have the ports of the file.
		return streamtest.Setup{Args: []string{"--config", file, "--addr", host, "--port", port, "--cluster", "nats://" + routes[i]}, Env: env}
	}
	c := streamtest.StartClusterWith(t, configure, func(addr string) string { return "tls://carstate:" + password + "@" + addr }, natsgo.RootCAs(ca))
	env := append(os.Environ(), "SSL_CERT_FILE="+ca)
	p, err := startProcess(t.TempDir(), env, "--nats", c.URLs(), "--partitions", "4", "--max-age", "24h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	drivesAndAnswers(t, p)
	if log := p.log.String(); strings.Contains(log, password) || strings.Contains(strings.ToLower(log), "violation") {
		t.Errorf("the log tells the password, or a right is missing:\n%s", log)
	}
	p.stop(t)
	// In clear, and without knowing the authority, nobody gets in.
	for _, urls := range []string{strings.ReplaceAll(c.URLs(), "tls://", "nats://"), c.URLs()} {
		for file, want := range map[string]string{
			"":              "cannot be reached: set SSL_CERT_FILE to",
			"/no/such/file": "the file that SSL_CERT_FILE names cannot be read",
			elsewhere:       "is SSL_CERT_FILE the certificate of",
		} {
			env := append(os.Environ(), "SSL_CERT_FILE="+file)
			if _, err := startProcess(t.TempDir(), env, "--nats", urls); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), password) {
				t.Errorf("a node that knows no authority, SSL_CERT_FILE=%s: %v", file, err)
			}
		}
	}
}

// drivesAndAnswers replays a drive and waits until it is judged.
func drivesAndAnswers(t *testing.T, p *process) {
	t.Helper()
	token := p.issue(t)
	p.carstate(t, "replay", "demo_drive.csv.gz", "--vid", "clustered")
	if err := until(time.Minute, func() error {
		a, err := p.ask(drivingPath, token, "clustered")
		if err == nil && a.Status != 1 {
			err = fmt.Errorf("no answer: %+v", a)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
