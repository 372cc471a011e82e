package query

import (
	"context"

	"example.org/carstate/bench/report"
)

// field holds what all peers (the measured servers) share: the processor core on which each of them
// runs while it is measured, and the files of their data.
type field struct {
	*report.Part
	self      string // this program
	core      int    // of the server
	generator int    // the core of the generator
	tokens    string // file, one token per line
	vehicles  string
	targets   string // file of the request targets for the generators

	started []*peer // they are stopped by stopAll
}

// add adds a peer to those that stopAll stops, and returns it.
func (f *field) add(p *peer) *peer {
	f.started = append(f.started, p)
	return p
}

// stopAll stops all peers.
func (f *field) stopAll() {
	for _, p := range f.started {
		p.stop()
	}
	f.started = nil
}

// peer is one server to be measured: carstate, or one with which it is compared.
type peer struct {
	name    string
	addr    string
	targets string
	pid     int
	stop    func()
	// before is called before each run. If nil, nothing is called.
	before func(context.Context)
}

// startSelf starts this program as a server, with the arguments args after "self", and waits until
// the server has printed its address.
func (f *field) startSelf(ctx context.Context, name, targets string, args ...string) *peer {
	r := launch(ctx, name, f.core, f.Dir, append([]string{f.self, "self"}, args...)...)
	p := f.add(&peer{name: name, targets: targets, pid: r.cmd.Process.Pid, stop: r.stop})
	p.addr = r.line()
	return p
}
