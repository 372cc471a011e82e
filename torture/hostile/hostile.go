// Package hostile is the row of the torture in which nobody means well: requests
// that are made to be misunderstood, clients that are slow on purpose, and cars
// that send what no car would.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// fullCount is the count from which on slow clients and hostile cars come in full
// number; below, as many in proportion.
const fullCount = 100_000

// Row is the row.
var Row = row.Row{
	Number:  6,
	Name:    "hostile",
	Title:   "Hostile clients",
	Promise: "Whatever bytes arrive, each request gets the answer that the contract has for it, in order, or its connection is closed; slow clients slow down nobody else; and what honest cars send meanwhile is stored and judged.",
	How:     how,
	Found: []string{
		"A `HEAD` with a head of more than 17 KiB was refused with a body, which a client takes for the next answer.",
		"More bytes behind an HTTP/1.0 request reset the connection, which could cost the client its answer.",
		"The HTTP listener of telemetry had no limit of connections: idle ones could take the descriptors of all other listeners.",
		"Clients that did not read their answers made the kernel hold up to 4 MiB for each: 800 of them used up nearly all that a machine had for TCP.",
		"An MQTT 5 client whose place was taken while it logged in got a DISCONNECT before any CONNACK, which no server may send.",
	},
	Counts: "answers to hostile requests",
	CI:     fullCount,
	Long:   10 * fullCount,
	Controls: []row.Control{
		{Defect: "overlooks-transfer-encoding", Says: "does not look at Transfer-Encoding, so that a request can hide behind another",
			By: []string{"wrong: conversation * of talker *: the answer is 2* (wanted 400): *", "wrong: conversation * of talker *: the answer is 4* (wanted 400): *"}, Count: 4000},
		{Defect: "echoes-input", Says: "repeats the path in the answer that refuses it",
			By: []string{"wrong: conversation * of talker *: the answer is not the envelope of a refusal (wanted 404): *"}, Count: 4000},
		{Defect: "no-read-deadline", Says: "waits for ever for the rest of a request", By: []string{"wrong: who sends *, and then little, may stay for ever: *"}, Count: 1000},
		{Defect: "answers-subscribe", Says: "lets a car subscribe", By: []string{"wrong: a hostile car: a car may subscribe: *"}, Count: 1000},
	},
	Needs: needs,
	Run:   run,
}

const how = `A generator writes requests by the grammar of HTTP and spoils them: other methods, versions and forms of target, encodings,
parameters twice or not at all, lengths near every limit, bare LF, folded lines, NUL, the ways to smuggle one request inside another (Content-Length
against Transfer-Encoding and all disguises of both), and bytes changed at random. Up to twelve follow each other over one connection, in pieces of
random sizes, from thousands of addresses. A model that is written from the contract, and shares no code with the service, says for any bytes
which answers are allowed: status, every header, the body to the byte, what is left of a limit, and whether the connection goes on. A last good request
tells whether both sides are still in step. The same is sent through nginx, whose other clients must get their own answers: all of them, but for one in a hundred that nginx may
answer with 502 or 504.

Then slowhttptest opens thousands of connections that send heads slowly, send bodies slowly (these are refused at once and come back), and read slowly. Others
ask meanwhile in an open loop: each
is due at its time whether or not the one before was answered. The 99th percentile of each second is taken, and of those the median: before the first attack,
during each, and after each; both are judged by the first. It is measured once half of the clients are connected, and half must be so in the median meanwhile (a head that does not come ends its
connection after 5 s). The attacker has one processor, and the service and its other clients have the rest, before the attack as during it: as if the attacker had a machine of its own. Where others take more than twice as long the
attack is made again, up to three times, and the best counts, as it does of up to six times afterwards: what else runs on the machine only ever adds.

Then thousands of clients connect to MQTT at once (512 in the same moment, all of them there together) and say nothing, half a CONNECT, or a wrong key; others hold the HTTP listener of telemetry
open; and sources that are known send packets that are broken, too large, for other cars, retained, with QoS 2, with wills, with one client ID
for all, and subscriptions. Honest cars and back ends go on meanwhile, with a journal of what was acknowledged: all of it must be judged in the end. Hostile cars of
which none is let in, has a good message acknowledged or is ever told no would show nothing: that is a finding, too.

What this cannot see: attacks on TLS, floods that fill the network or the kernel's queues, and clients on more machines than one.`

// files is how many descriptors this process and the node need.
const files = 17_500

func needs() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max < files {
		return fmt.Errorf("a process may open only %d files: allow it %d with 'ulimit -n %d'", limit.Max, files, files)
	}
	for program, pkg := range map[string]string{"slowhttptest": "slowhttptest", "nginx": "nginx-light", "chrt": "util-linux", "taskset": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not there: run 'apt-get install %s' as root", program, pkg)
		}
	}
	return nil
}

func run(ctx context.Context, a *row.Attempt) (err error) {
	w, err := newWorld(ctx, a)
	if err != nil {
		return err
	}
	defer w.Kill()
	for _, part := range []struct {
		name string
		do   func(context.Context, *world) error
	}{{"requests", hostileRequests}, {"dawdling", dawdle}, {"proxy", behindProxy}, {"telemetry", telemetry}, {"slow clients", slow}} {
		began := time.Now()
		if err := part.do(ctx, w); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.Logf("%s took %s", part.name, time.Since(began).Round(time.Millisecond))
	}
	lines, bytes := w.log.said()
	a.Figure("log", float64(lines), "lines")
	a.Aimed("log", float64(bytes)/(1<<20), "MiB", "≤ 1 MiB", bytes <= 1<<20)
	select {
	case <-w.Ended():
		a.Wrong("the process has ended; the last it said: %.300q", w.Log()[max(0, len(w.Log())-300):])
		return nil
	default:
	}
	if err := w.Stop(); err != nil {
		if _, ok := errors.AsType[*nodeprocess.EndedError](err); !ok {
			return err
		}
		a.Wrong("it does not end as it should: %v", err)
	}
	return nil
}

func hostileRequests(ctx context.Context, w *world) error {
	return requests(ctx, w.attempt, w.contract, w.writer, w.Address(nodeprocess.Query), w.attempt.Count)
}

// share is how many of n there are in an attempt of this size, at least a few.
func share(a *row.Attempt, n, least int) int {
	return max(least, min(n, n*a.Count/fullCount))
}
