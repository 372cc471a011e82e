// Package engine holds the rows with power cuts, full disks and damaged files, which run tests of
// the storage engine.
package engine

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"example.org/carstate/bench/must"
	"example.org/carstate/torture/row"
)

var (
	Power  = running("TestPowerCuts", "powercuts", row.Row{Name: "power", Counts: "cuts", CI: 20_000})
	Full   = running("TestDiskFull", "fullwrites", row.Row{Name: "full", Counts: "times full", CI: 1000})
	Damage = running("TestDamage", "damages", row.Row{Name: "damage", Counts: "damaged directories", CI: 5000})
)

func running(test, count string, r row.Row) row.Row {
	r.Tests = "./internal/store/local"
	r.Run = func(ctx context.Context, a *row.Attempt) {
		cmd := exec.CommandContext(ctx, a.Binary, "-test.v", "-test.timeout", "0", "-test.run", "^"+test+"$",
			"-seed", strconv.FormatUint(a.Seed, 10), "-"+count, strconv.Itoa(a.Count))
		cmd.Dir = a.Dir
		out := must.Get(cmd.StdoutPipe())
		cmd.Stderr = cmd.Stdout
		must.Do(cmd.Start())
		done := 0
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			done = max(done, evaluate(a, lines.Text()))
		}
		a.Offered(max(done, a.Count)) // the last workload may make more cuts
		a.Acknowledged(done)
		err := errors.Join(lines.Err(), cmd.Wait())
		if o := a.Outcome(); err != nil && o.Found() {
			return
		}
		if must.Do(err); done < a.Count {
			must.Fail("%s did %d of %d", test, done, a.Count)
		}
	}
	return r
}

var (
	logged   = regexp.MustCompile(`^ +\w+_test\.go:\d+: (.+)$`)
	doneLine = regexp.MustCompile(`^done (\d+) [a-z ]+(?:: (.+))?$`)
	seed     = regexp.MustCompile(`^-seed \d+$`)
	crash    = regexp.MustCompile(`^(?:panic|fatal error): .+`)
)

// Any logged line but the seed and the number of repetitions is a finding; so is a panic.
func evaluate(a *row.Attempt, line string) (done int) {
	if crash.MatchString(line) {
		a.Wrong("the engine ends its process: %s", line)
	}
	log := logged.FindStringSubmatch(line)
	if log == nil {
		return 0
	}
	text := log[1]
	if m := doneLine.FindStringSubmatch(text); m != nil {
		for figure := range strings.SplitSeq(m[2], ", ") {
			if n, name, ok := strings.Cut(figure, " "); ok {
				value, _ := strconv.ParseFloat(n, 64)
				a.Figure(name, value, "")
			}
		}
		done, _ = strconv.Atoi(m[1])
		return done
	}
	switch {
	case seed.MatchString(text):
	case strings.Contains(text, "acknowledged"):
		a.Lost("%s", text)
	default:
		a.Wrong("%s", text)
	}
	return 0
}
