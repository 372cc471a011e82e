package corrupt

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Every damage changes the directory, says what it did, and is the same again
// with the same seed.
func TestInflict(t *testing.T) {
	fill := func(dir string) {
		for i, name := range []string{"carstate.json", "engine/TOKENS/1.blk", "engine/STATES/1.blk", "engine/STATES/index.db", "admin.key", "lock"} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			content := make([]byte, i*700)
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for at := range content {
				content[at] = byte(1 + rnd.IntN(255))
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	look := func(dir string) map[string]string {
		names, err := files(dir)
		if err != nil {
			t.Fatal(err)
		}
		content := make(map[string]string)
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			content[name] = string(text)
		}
		return content
	}
	same := func(a, b map[string]string) bool {
		for name, text := range a {
			if other, ok := b[name]; !ok || other != text {
				return false
			}
		}
		return len(a) == len(b)
	}
	unchanged, silent := 0, 0
	const tries = 300
	for seed := range uint64(tries) {
		one, two := t.TempDir(), t.TempDir()
		fill(one)
		fill(two)
		whole := look(one)
		d, err := inflict(rand.New(rand.NewPCG(seed, 1)), one, true)
		if err != nil || d.says == "" {
			t.Fatalf("seed %d: %+v, %v", seed, d, err)
		}
		if again, err := inflict(rand.New(rand.NewPCG(seed, 1)), two, true); err != nil || again != d || !same(look(one), look(two)) {
			t.Fatalf("seed %d does something else the second time: %q, %q, %v", seed, d.says, again.says, err)
		}
		if same(whole, look(one)) {
			unchanged++ // a file that is empty was emptied
		}
		if d.silent {
			silent++
		}
	}
	if unchanged > tries/10 || silent == 0 || silent > tries*3/4 {
		t.Errorf("%d of %d did nothing, %d cannot be told from a crash", unchanged, tries, silent)
	}
}
