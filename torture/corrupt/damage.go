package corrupt

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// damage is something done to a data directory.
type damage struct {
	says string
	// silent: where the end of the newest block may be torn, it may not be told
	// from that.
	silent bool
}

// The ways to damage a file; nil: it is removed.
var ways = []struct {
	name   string
	weight int
	do     func(rnd *rand.Rand, content []byte) []byte
}{
	{"a bit flipped", 5, func(rnd *rand.Rand, b []byte) []byte {
		b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
		return b
	}},
	{"a byte replaced", 3, func(rnd *rand.Rand, b []byte) []byte {
		b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
		return b
	}},
	{"bytes replaced in several places", 2, func(rnd *rand.Rand, b []byte) []byte {
		for range 2 + rnd.IntN(8) {
			b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
		}
		return b
	}},
	{"cut short", 4, func(rnd *rand.Rand, b []byte) []byte { return b[:rnd.IntN(len(b))] }},
	{"the last bytes gone", 2, func(rnd *rand.Rand, b []byte) []byte { return b[:len(b)-1-rnd.IntN(min(len(b), 600))] }},
	{"a range of zeros", 4, func(rnd *rand.Rand, b []byte) []byte {
		from := rnd.IntN(len(b))
		clear(b[from : from+1+rnd.IntN(min(len(b)-from, 4096))])
		return b
	}},
	{"a sector of another place", 2, func(rnd *rand.Rand, b []byte) []byte {
		const sector = 512
		b[rnd.IntN(len(b))] = b[rnd.IntN(len(b))]
		if len(b) > 2*sector {
			copy(b[rnd.IntN(len(b)/sector)*sector:], slices.Clone(b[rnd.IntN(len(b)/sector)*sector:][:sector]))
		}
		return b
	}},
	{"bytes added", 2, func(rnd *rand.Rand, b []byte) []byte {
		for range 1 + rnd.IntN(600) {
			b = append(b, byte(rnd.Uint32()))
		}
		return b
	}},
	{"removed", 3, nil},
	{"emptied", 1, func(*rand.Rand, []byte) []byte { return nil }},
}

// inflict damages one or two files of the directory, or swaps two. torn says that
// the end of its newest blocks may be.
func inflict(rnd *rand.Rand, dir string, torn bool) (damage, error) {
	files, err := files(dir)
	if err != nil {
		return damage{}, err
	}
	if rnd.IntN(12) == 0 {
		return swap(rnd, dir, files)
	}
	d, err := one(rnd, dir, files, torn)
	if err == nil && rnd.IntN(8) == 0 {
		var more damage
		more, err = one(rnd, dir, files, torn)
		d = damage{d.says + "; " + more.says, d.silent || more.silent}
	}
	return d, err
}

// files lists a directory's files by their names in it, those with records as
// often as all the others together.
func files(dir string) (all []string, err error) {
	var records, others []string
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if strings.HasSuffix(name, ".blk") {
			records = append(records, name)
		} else {
			others = append(others, name)
		}
		return err
	})
	for len(records) > 0 && len(all) < len(others) {
		all = append(all, records...)
	}
	return append(all, others...), err
}

func one(rnd *rand.Rand, dir string, files []string, torn bool) (damage, error) {
	var drawn []int // each way as often as its weight
	for i, w := range ways {
		drawn = append(drawn, slices.Repeat([]int{i}, w.weight)...)
	}
	name, way := files[rnd.IntN(len(files))], ways[drawn[rnd.IntN(len(drawn))]]
	path := filepath.Join(dir, name)
	d := damage{says: name + ": " + way.name, silent: torn && strings.HasSuffix(name, ".blk")}
	content, err := os.ReadFile(path)
	if err != nil {
		return d, nil // removed by the first of two
	}
	if way.do == nil {
		return d, os.Remove(path)
	}
	before := len(content)
	if before == 0 {
		content = []byte{0} // so that there is something to damage
	}
	content = way.do(rnd, content)
	d.says += fmt.Sprintf(", %d bytes, then %d", before, len(content))
	return d, os.WriteFile(path, content, 0o600)
}

// swap exchanges two files of one kind.
func swap(rnd *rand.Rand, dir string, files []string) (damage, error) {
	first := files[rnd.IntN(len(files))]
	alike := slices.DeleteFunc(slices.Clone(files), func(name string) bool {
		return name == first || filepath.Ext(name) != filepath.Ext(first)
	})
	if len(alike) == 0 {
		return damage{says: "nothing"}, nil
	}
	second := alike[rnd.IntN(len(alike))]
	d := damage{says: first + " and " + second + " swapped"}
	aside := filepath.Join(dir, "aside")
	a, b := filepath.Join(dir, first), filepath.Join(dir, second)
	for _, step := range [][2]string{{a, aside}, {b, a}, {aside, b}} {
		if err := os.Rename(step[0], step[1]); err != nil {
			return d, err
		}
	}
	return d, nil
}
