package disk

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever a program does: what was synced last and not touched since is there
// after any cut, under its name and byte by byte, and after another cut.
func TestWhatWasSyncedStays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := hand{t, New()}
		h.make("d", dir)
		names := []string{"a", "b", "d/a", "d/b"}
		exists, durable := map[string]string{}, map[string]string{} // by name: content
		name := rapid.SampledFrom(names)
		for i := range rapid.IntRange(1, 40).Draw(rt, "operations") {
			at := name.Draw(rt, "name")
			_, there := exists[at]
			switch what := rapid.IntRange(0, 5).Draw(rt, "what"); {
			case !there:
				h.make(at, file)
				exists[at] = ""
				delete(durable, at)
			case what <= 1:
				// Like a page, and longer than one.
				text := strings.Repeat(fmt.Sprint(i%10), rapid.IntRange(1, 2*pageBytes).Draw(rt, "bytes"))
				h.write(at, text, int64(len(exists[at])))
				exists[at] += text
				delete(durable, at)
			case what <= 3:
				h.sync(at)
				durable[at] = exists[at]
			case what == 4:
				h.remove(at, false)
				delete(exists, at)
				delete(durable, at)
			default:
				to := name.Draw(rt, "to")
				h.rename(at, to)
				if to == at {
					continue
				}
				exists[to] = exists[at]
				delete(exists, at)
				delete(durable, to)
				content, was := durable[at]
				delete(durable, at)
				if was && rapid.Bool().Draw(rt, "sync the directories") {
					for _, d := range []string{"", "d"} {
						h.syncDir(d)
					}
					durable[to] = content
				}
			}
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		for range 2 {
			h.CutAfter(0)
			h = hand{t, h.After(rng)}
			found := h.tree()
			for path, want := range durable {
				if got, ok := found[path]; !ok || got != want {
					rt.Fatalf("%s was synced with %d bytes: it is there: %t, with %d bytes", path, len(want), ok, len(got))
				}
			}
		}
	})
}
