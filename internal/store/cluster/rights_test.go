package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func shippedRights(t *testing.T) string { return shipped(t, `(?s)permissions \{.*?\n        \}`) }

func shipped(t *testing.T, pattern string) string {
	t.Helper()
	var found [][]byte
	for _, name := range []string{"nats.conf", "nats-tls.conf"} {
		text, err := os.ReadFile("../../../deploy/nats/" + name)
		testkit.NoError(t, err)
		rights := regexp.MustCompile(pattern).Find(text)
		if rights == nil {
			t.Fatalf("deploy/nats/%s: got no rights, want some", name)
		}
		found = append(found, rights)
	}
	if !bytes.Equal(found[0], found[1]) {
		t.Errorf("the rights of the two files of deploy/nats: got\n%s\nwant\n%s", found[1], found[0])
	}
	return string(found[0])
}

// a user without limits
var operator = nats.UserInfo("operator", "secret")

// The user carstate of its only account has these permissions.
func startWithRights(t *testing.T, rights string) *clustertest.Cluster {
	t.Helper()
	return clustertest.StartClusterAs(t, fmt.Sprintf(`
		accounts { A { jetstream: enabled, users: [
			{ user: carstate, password: secret, %s },
			{ user: operator, password: secret }
		] } }
	`, rights), operator)
}

func publishRights(t *testing.T, rights string) (subjects []string) {
	t.Helper()
	publish, _, ok := strings.Cut(rights, "subscribe")
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(publish, -1) {
		subjects = append(subjects, m[1])
	}
	if !ok || len(subjects) < 10 {
		t.Fatalf("the permissions: got %d subjects, want 10 or more, in %s", len(subjects), rights)
	}
	return subjects
}

type rightsCluster struct {
	urls    string
	publish []string
	js      jetstream.JetStream

	mu   sync.Mutex
	used map[string]bool // subjects to which carstate published, without the requests of probeRights
}

func startRightsCluster(t *testing.T) *rightsCluster {
	t.Helper()
	c := &rightsCluster{used: make(map[string]bool)}
	rights := shippedRights(t)
	c.publish = publishRights(t, rights)
	servers := startWithRights(t, rights)
	c.urls = strings.ReplaceAll(servers.URLs(), "nats://", "nats://carstate:secret@")
	c.js = clustertest.JetStream(t, servers.URLs(), operator)
	sub, err := c.js.Conn().Subscribe(">", c.see)
	testkit.NoError(t, err)
	testkit.NoError(t, sub.SetPendingLimits(-1, -1))
	return c
}

// Requests of probeRights need no permission.
func (c *rightsCluster) see(m *nats.Msg) {
	body := string(m.Data)
	if m.Header.Get(jetstream.ExpectedStreamHeader) == "no-such-stream" || strings.Contains(m.Subject+body, "probe") ||
		body == noRecord || body == "{}" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used[m.Subject] = true
}

func (c *rightsCluster) sent(prefix string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for subject := range c.used {
		if strings.HasPrefix(subject, prefix) {
			return true
		}
	}
	return false
}

func (c *rightsCluster) unused() (rights []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, right := range c.publish {
		uses := func(subject string) bool { return server.SubjectMatchesFilter(subject, right) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(c.used)), uses) {
			rights = append(rights, right)
		}
	}
	return rights
}

func TestRights_SufficientAndAllUsed(t *testing.T) {
	t.Parallel()
	testkit.Slow(t, "it takes a real engine through seconds of work")
	c := startRightsCluster(t)
	log := new(testkit.Buffer)
	clock := testkit.NewClock(time.Now())
	config := Config{Partitions: maxStreams, Streams: maxStreams, Log: slog.New(slog.NewTextHandler(log, nil)),
		Now: clock.Now, URLs: c.urls, Replicas: 1}
	startNode(t, config).Stop()
	config.Replicas = 3 // no first start, so the streams are changed
	n := startNode(t, config)
	ctx := testkit.Context(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Errorf("with the shipped rights: got %v, want no error", err)
		}
	}

	tokens := n.GrantAll(t)
	var cars []vehicle.ID
	for i := range 100 {
		cars = append(cars, vehicle.ID(fmt.Sprintf("Other%04d", i)))
	}
	var many []vehicle.ID // more bytes in the feed of tokens than the servers send without flow control
	for i := range 8000 {
		many = append(many, vehicle.ID(fmt.Sprintf("Many%04d", i)+strings.Repeat("x", 240)))
	}
	n.Token(t, access.VehicleSet(many...))
	n.Drive(t, 1000, append(cars, storetest.SecretVID)...)
	if r, err := n.Recent(ctx, storetest.SecretVID, 10); err != nil || len(r.Samples) != 1 {
		t.Errorf("the readings of a vehicle: got %+v, error %v; want one sample", r, err)
	}
	g, _ := n.Tables.Tokens.Get(tokens[0])
	g.Count(access.Answered, config.Now())
	ended, cancel := context.WithCancel(ctx)
	cancel()
	n.KeepUsage(ended) // stores once and ends
	n.keepRoads(t, c)
	leases := n.cluster.Leases()
	must(leases.Renew(ctx, "gone", 1, false))
	must(leases.Remove(ctx, "gone"))

	n.EndOf(t, access.TokenKind, tokens[1])
	o, _, err := access.New(access.Credential{Kind: access.OperatorKind, Name: "ada"}, config.Now())
	must(err)
	must(n.Create(ctx, o))
	_, err = n.Update(ctx, access.OperatorKind, "ada",
		func(o *access.Credential) error { o.Ended = config.Now(); return nil })
	must(err)
	backup := storetest.BackupOf(t, n.Service)
	receipt := n.MustForget(t, storetest.SecretVID)
	if _, err := n.Bury(ctx, []access.ForgetReceipt{receipt}); err != nil {
		t.Errorf("Bury: got %v, want no error", err)
	}
	n.Erase(t, clock)
	n.MustAllow(t, storetest.SecretVID)
	must(n.Audit(ctx, access.Event{Actor: "ada", Action: "test"}))
	if events, _, err := n.AuditPage(ctx, 0, 100); err != nil || len(events) != 1 {
		t.Errorf("the audit: got %d events, error %v; want 1", len(events), err)
	}
	n.Stop()

	// Restore the backup into a service that has lost everything.
	for name := range copies(t, c.js) {
		must(c.js.DeleteStream(ctx, name))
	}
	m := startNode(t, config)
	report := storetest.RestoreInto(t, m.Service, backup)
	if report.Kinds["state"].Restored != len(cars)+1 || report.Kinds["token"].Restored != 5 {
		t.Errorf("the restore: got %+v, want %d states and 5 tokens", report.Kinds, len(cars)+1)
	}
	m.Stop()

	if log.Count("violation") > 0 || log.Count("lacks a right") > 0 {
		t.Errorf("the log: got a missing right, want none:\n%s", log)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("not made use of: %q", c.unused())
		}
	})
	testkit.Await(t, "each right is made use of", func() bool { return len(c.unused()) == 0 })
}

func (n node) keepRoads(t *testing.T, c *rightsCluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { n.KeepRoads(ctx, &n.Roads, true, func() { close(loaded) }) })
	<-loaded
	for quarter := range 3 {
		for car := range 6 {
			id := vehicle.ID(fmt.Sprintf("Road%d", car))
			var s vehicle.State
			for i := range 20 {
				x := storetest.Speed(id, 1_795_000_000_000+int64(quarter)*15*60*1000+int64(i)*5000, 50)
				if err := errors.Join(x.Set(signal.CurrentLatitude, 44.5+float64(i)*0.0006),
					x.Set(signal.CurrentLongitude, 11.34)); err != nil {
					t.Fatalf("the position: got %v, want no error", err)
				}
				n.Roads.Fold(&s, &x, false)
			}
		}
	}
	testkit.Await(t, "other nodes receive evidence", func() bool { return c.sent("carstate.roads.") })
	cancel()
	running.Wait()
}

// A missing permission must be found at the start and named, unless it only serves to change
// streams.
func TestEachRightIsProbed(t *testing.T) {
	t.Parallel()
	rights := shippedRights(t)
	type account struct{ lacks, permissions, want string }
	accounts := []account{
		{"subscribe", `permissions { subscribe: { deny: ">" } }`, "Subscription to "},
		{"carstate.>", `permissions { subscribe: { deny: "carstate.>" } }`, "Subscription to carstate."},
	}
	for _, right := range publishRights(t, rights) {
		if !strings.HasPrefix(right, "$JS.API.STREAM.UPDATE.") {
			without := strings.Replace(rights, `"`+right+`"`, `"nothing.of.use"`, 1)
			accounts = append(accounts, account{right, without, "Publish to " + right[:strings.IndexAny(right+"*", "*>")]})
		}
	}
	var config strings.Builder
	for i, a := range accounts {
		fmt.Fprintf(&config, "A%d { jetstream: enabled, users: [ { user: user%d, password: secret, %s } ] }\n",
			i, i, a.permissions)
	}
	addr := clustertest.StartProcess(t, "jetstream { max_file_store: 1PB }\naccounts {\n"+config.String()+"}").Addr
	for i, a := range accounts {
		t.Run(a.lacks, func(t *testing.T) {
			t.Parallel()
			refused(t, Config{Streams: maxStreams, URLs: fmt.Sprintf("nats://user%d:secret@%s", i, addr)},
				"the NATS account lacks a right: "+a.want)
		})
	}
}

// Without the permissions to change streams that exist, a node works, and an attacker with its
// login cannot shorten the audit.
func TestRightsToChangeStreams_TakenAway(t *testing.T) {
	t.Parallel()
	rights := shippedRights(t)
	without := regexp.MustCompile(`"\$JS\.API\.STREAM\.(CREATE|UPDATE)\.[A-Z0-9-]+",?`).ReplaceAllString(rights, "")
	if strings.Contains(without, "STREAM.CREATE") || strings.Contains(without, "STREAM.UPDATE") {
		t.Fatalf("the rights: got one to create or update streams, want none: %s", without)
	}
	addr := clustertest.StartProcess(t, fmt.Sprintf(`jetstream { max_file_store: 1PB }, accounts { A { jetstream: enabled, users: [
		{ user: first, password: secret, %s }
		{ user: later, password: secret, %s }
	] } }`, rights, without)).Addr
	for _, user := range []string{"first", "later"} {
		url := "nats://" + user + ":secret@" + addr
		n := startNode(t, Config{URLs: url})
		if err := n.Audit(t.Context(), access.Event{Actor: "ada", Action: "test"}); err != nil {
			t.Errorf("%s: got %v of Audit, want no error", user, err)
		}
		n.Stop()
		thief, err := nats.Connect(url, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		testkit.NoError(t, err)
		defer thief.Close()
		may := map[string]bool{
			"$JS.API.STREAM.UPDATE.AUDIT": user == "first", "$JS.API.STREAM.DELETE.AUDIT": false,
			"$JS.API.STREAM.PURGE.AUDIT": false, "$JS.API.STREAM.MSG.DELETE.AUDIT": false,
		}
		for _, subject := range slices.Sorted(maps.Keys(may)) {
			testkit.NoError(t, errors.Join(thief.Publish(subject, nil), thief.Flush()))
			if err := thief.LastError(); (err == nil || !strings.Contains(err.Error(), subject)) != may[subject] {
				t.Errorf("%s asks for %s: got %v, want allowed: %t", user, subject, err, may[subject])
			}
		}
	}
	refused(t, Config{URLs: "nats://later:secret@" + addr, StatesBytes: 32 << 30},
		"lacks a right: Publish to $JS.API.STREAM.UPDATE.STATES")
}

// The holder of a node's login names a request of JetStream as the subject of an answer, a delivery
// or a reply. Once changes are mapped away, that changes no stream.
func TestStolenLogin(t *testing.T) {
	t.Parallel()
	testkit.Slow(t, "it starts a NATS server and a node")
	rights := shippedRights(t)
	system := strings.ReplaceAll(shipped(t, `(?s)  SYS \{.*?\n  \}`), "#", "")
	addr := clustertest.StartProcess(t, fmt.Sprintf(`jetstream { max_file_store: 1PB }
accounts {
  A { jetstream: enabled, users: [ { user: carstate, password: secret, %s }, { user: operator, password: secret } ] }
%s
}
system_account: SYS`, rights, system)).Addr
	url := "nats://carstate:secret@" + addr
	n := startNode(t, Config{URLs: url})
	for range 2 {
		testkit.NoError(t, n.Audit(t.Context(), access.Event{Actor: "ada", Action: "test"}))
	}
	js := clustertest.JetStream(t, "nats://"+addr, operator)
	_, info := stream(t, js, codec.Audit)
	info.Config.MaxMsgs = 1
	shorter, err := json.Marshal(info.Config)
	testkit.NoError(t, err)
	thief, err := nats.Connect(url, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	testkit.NoError(t, err)
	defer thief.Close()
	requests := map[string]string{"$JS.API.STREAM.UPDATE.AUDIT": string(shorter)}
	for _, name := range codec.Streams {
		requests["$JS.API.STREAM.DELETE."+name], requests["$JS.API.STREAM.PURGE."+name] = "", ""
	}
	for to, body := range requests {
		name := strings.ReplaceAll(to, ".", "-")
		_, err := thief.Request("road."+name, []byte(body), 5*time.Second)
		testkit.NoError(t, err)
		consumer := fmt.Sprintf(`{"stream_name":"ROADS","config":{"name":%q,"filter_subject":"road.%s",
			"deliver_subject":%q,"ack_policy":"none","deliver_policy":"all"}}`, name, name, to)
		m, err := thief.Request("$JS.API.CONSUMER.CREATE.ROADS."+name+".road."+name, []byte(consumer), 5*time.Second)
		if err != nil || strings.Contains(string(m.Data), `"error"`) {
			t.Fatalf("got %v, %v, want a consumer", m, err)
		}
		get, question := []byte(`{"last_by_subj":"road.`+name+`"}`), codec.SealMessage(ownerSubject(0), []byte("\x00{}"))
		testkit.NoError(t, thief.PublishRequest("$JS.API.STREAM.MSG.GET.ROADS", to, get))
		testkit.NoError(t, thief.PublishRequest("$JS.API.DIRECT.GET.ROADS", to, get)) // which it may not
		testkit.NoError(t, thief.PublishRequest(ownerSubject(0), to, question))
	}
	_, err = thief.Request("$JS.API.STREAM.INFO.ROADS", nil, 5*time.Second)
	testkit.NoError(t, err)
	for name, least := range map[string]uint64{codec.Audit: 2, codec.Roads: uint64(len(requests)),
		codec.States: uint64(n.Partitions()), codec.Sources: 1, codec.Tokens: 1, codec.Telemetry: 0} {
		if _, info := stream(t, js, name); info.State.Msgs < least {
			t.Errorf("%s has %d records, want at least %d", name, info.State.Msgs, least)
		}
	}
}
