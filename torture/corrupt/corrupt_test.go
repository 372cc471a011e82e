package corrupt

import (
	"testing"
	"time"

	"carstate/torture/load"
)

// Only the newest records may be missing, and only where a crash may have torn
// them off.
func TestExcused(t *testing.T) {
	witnessed := time.Now()
	before, after := witnessed.Add(-time.Second), witnessed.Add(time.Second)
	for name, c := range map[string]struct {
		silent  bool
		finding load.Finding
		want    bool
	}{
		"one of the newest":          {true, load.Finding{Text: "x", Lost: true, Missing: after}, true},
		"a deed as if not done":      {true, load.Finding{Text: "x", Missing: after}, true},
		"one with a witness":         {true, load.Finding{Text: "x", Lost: true, Missing: before}, false},
		"nobody knows how old":       {true, load.Finding{Text: "x", Lost: true}, false},
		"a wrong answer":             {true, load.Finding{Text: "x"}, false},
		"the newest of another copy": {false, load.Finding{Text: "x", Lost: true, Missing: after}, false},
	} {
		if got := excused(damage{silent: c.silent}, c.finding, witnessed); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAdvice(t *testing.T) {
	for line, want := range map[string]bool{
		"the data directory /d is damaged (stream TOKENS, block 1): restore a backup into a new --data-dir":                 true,
		"the data directory /d is in use by another carstate: stop that one or choose another --data-dir":                   true,
		"the data directory /d was written by a newer carstate (format 9): use that version":                                true,
		"/d/admin.key can be read or changed by others: run chmod 600 /d/admin.key":                                         true,
		"/d/admin.key holds no admin key: it is too short; move it away and start the service again for a new one":          true,
		"the streams were made with 4 partitions, which cannot change: leave --partitions out or set it to 4":               true,
		"the engine stores nothing more after a write error, and the disk takes writes again: restart carstate (disk full)": true,
		"the data directory cannot be written (lock: permission denied): check its owner and permissions":                   true,
		"the directory /d holds files that are not carstate's: choose an empty or a new --data-dir":                         true,
		"the restored stream cannot be used":     false,
		"the address is in use ":                 false,
		"the cause is unknown, the check failed": false,
		"panic: remove":                          false,
		"":                                       false,
	} {
		if advice.MatchString(line) != want {
			t.Errorf("%q: %t", line, !want)
		}
	}
}
