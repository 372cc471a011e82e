package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/internal/store/cluster"
	"carstate/torture/row"
	"carstate/torture/writers"
)

// carstates is the number of nodes of carstate. Each has all roles.
const carstates = 3

// sourceName is the name of the cars' source. layout says how many cars report.
const sourceName = "gateway"

var layout = writers.Layout{HTTP: 4, MQTT: 1, Cars: 6}

// partitions is the number of partitions. It is so small that each partition has cars. So if a
// partition has no owner, some cars get no new verdicts, and the row notices.
const partitions = 8

// startWithin is the time limit of each step of the start, even on a busy machine.
const startWithin = 2 * time.Minute

// system is everything that runs in the row.
type system struct {
	a       *row.Attempt
	net     *network
	cluster *natsCluster
	nodes   []*nodeprocess.Node
	folder  *nodeprocess.Node // the last node that was started with only the role derive; nil: none yet
	folders int               // how many such nodes were started
	engine  *cluster.Engine   // of this process, to read what is stored

	token    string
	load     *writers.Fleet
	asking   *asking
	follow   *following
	watch    *watching
	stopLoad context.CancelFunc
	stopRest context.CancelFunc
	running  sync.WaitGroup // goroutines of follow and watch
}

// startNodes starts the nodes that have all roles, and issues the token.
func (s *system) startNodes(ctx context.Context) {
	for i := range carstates {
		n := must.Get(s.startNode(ctx, fmt.Sprintf("node-%d", i)))
		s.nodes = append(s.nodes, n)
		must.Do(n.AwaitReady(ctx, startWithin))
	}
	s.token = must.Get(s.nodes[0].IssueToken(ctx, "Ada")).AccessToken
}

// startNode starts a node of carstate. If the servers have not elected a leader yet, the node
// exits, and startNode starts it again as a supervisor would do.
func (s *system) startNode(ctx context.Context, name string, flags ...string) (n *nodeprocess.Node, err error) {
	dir := filepath.Join(s.a.Dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	flags = append([]string{"--nats", s.cluster.urls(), "--replicas", "3", "--partitions", strconv.Itoa(partitions),
		"--retention", "24h"}, flags...)
	err = nodeprocess.Until(ctx, startWithin, func(ctx context.Context) (err error) {
		n, err = nodeprocess.Start(ctx, nodeprocess.Options{Binary: s.a.Binary, Dir: dir, Flags: flags})
		return err
	})
	return n, err
}

// startTraffic starts the cars. Once every node knows every car, it starts the queries and the
// observers.
func (s *system) startTraffic(ctx context.Context) {
	key := must.Get(s.nodes[0].AddSource(ctx, sourceName))
	must.Do(nodeprocess.Until(ctx, startWithin, s.cluster.whole))
	loading, stopLoad := context.WithCancel(ctx)
	s.stopLoad = stopLoad
	s.load = writers.Start(loading, s.a, s.nodes, sourceName, key, layout)
	for _, n := range s.nodes {
		for _, id := range layout.All() {
			must.Do(n.AwaitAnswer(ctx, startWithin, s.token, string(id), time.Time{}))
		}
	}
	rest, stopRest := context.WithCancel(ctx)
	s.stopRest = stopRest
	s.asking = startAsking(rest, s.a, s.nodes, s.token)
	s.follow, s.watch = newFollowing(s.a), newWatching(s.nodes)
	s.running.Go(func() { s.follow.run(rest, s.engine) })
	for i, n := range s.nodes {
		s.running.Go(func() { s.watch.run(rest, i, n) })
		s.running.Go(func() {
			select {
			case <-rest.Done():
			case <-n.Ended():
				said := n.Log()
				s.a.Wrong("node %d ended: %.2000s", i, said[max(0, strings.Index(said, "\npanic: ")):])
			}
		})
	}
}

// stopTraffic ends the cars, the queries and the observers.
func (s *system) stopTraffic() {
	s.stopLoad()
	s.stopRest()
	_ = s.net.plugAll() // so that operations that wait for the servers end
	s.engine.Cut()      // otherwise goroutines that wait for an answer of NATS would delay the end
	if s.load != nil {
		s.load.Wait()
	}
	if s.asking != nil {
		s.asking.running.Wait()
	}
	s.running.Wait()
}

func (s *system) killNodes() {
	for _, n := range s.nodes {
		n.Kill()
	}
	if s.folder != nil {
		s.folder.Kill()
	}
}
