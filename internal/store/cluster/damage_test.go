package cluster_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/store"
	"carstate/internal/store/cluster"
	"carstate/internal/store/codec"
	"carstate/internal/store/storetest"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// A bit that changed on disk is found before the server starts, wherever it is,
// and nothing is touched, so that the next start says the same.
func TestFlippedBit(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	t.Run("closed", func(t *testing.T) {
		whole := filledDir(t)
		for _, name := range []string{codec.Telemetry, codec.States, codec.Tokens, codec.Audit} {
			flipBits(t, whole, name, 1)
		}
	})
	t.Run("crashed", func(t *testing.T) {
		whole := crashedDir(t)
		for _, name := range []string{codec.Telemetry, codec.States, codec.Tokens} {
			// The last record may be a write that was torn.
			flipBits(t, whole, name, 0.75)
		}
	})
}

// flipBits flips bits in the first part of a stream's block.
func flipBits(t *testing.T, whole, name string, part float64) {
	t.Run(name, func(t *testing.T) {
		content := block(t, whole, name)
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 8 {
			at := rnd.IntN(int(part * float64(len(content))))
			dir := copyDir(t, whole)
			bad := bytes.Clone(content)
			bad[at] ^= 1 << rnd.IntN(8)
			put(t, blockFile(t, dir, name), string(bad))
			before := tree(t, dir)
			refused(t, cluster.Config{DataDir: dir}, "damaged (stream "+name)
			refused(t, cluster.Config{DataDir: dir}, "damaged (stream "+name)
			if tree(t, dir) != before {
				t.Fatalf("bit flipped at byte %d of %d: the directory was changed", at, len(content))
			}
		}
	})
}

// The end of the newest block may be missing or zeros: that is what a power cut
// leaves of a commit that was not acknowledged.
func TestTornTail(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "crashed")
	unwitnessed(t, whole)
	content := block(t, whole, codec.Telemetry)
	cases := map[string]func() []byte{
		"a record cut short":  func() []byte { return content[:len(content)-17] },
		"a header cut short":  func() []byte { return append(bytes.Clone(content), 40, 0, 0) },
		"a record of zeros":   func() []byte { return append(bytes.Clone(content), make([]byte, 2000)...) },
		"only its later part": func() []byte { return append(append(bytes.Clone(content), make([]byte, 5000)...), content[:900]...) },
		"only its later sectors": func() []byte {
			b := append(bytes.Clone(content), make([]byte, (512-len(content)%512)%512)...)
			return append(b, content[:900]...)
		},
		"its last bytes missing":  func() []byte { return content[:len(content)-1] },
		"garbage for a last part": func() []byte { b := bytes.Clone(content); b[len(b)-3] ^= 0xff; return b },
	}
	for name, torn := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, whole)
			put(t, blockFile(t, dir, codec.Telemetry), string(torn()))
			e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			part, err := e.Take(t.Context(), codec.PartitionOf("carA", e.Partitions()), "test", store.Anyone)
			if err != nil {
				t.Fatal(err)
			}
			defer part.Close()
			// All but, at most, the record that was cut are there, and what
			// is stored now comes behind them.
			if err := e.Append(t.Context(), []vehicle.Sample{sample("carA", 1_000_000, 50)}); err != nil {
				t.Fatal(err)
			}
			last := vehicle.UnixMilli(0)
			for {
				_, samples, err := part.Next(testkit.Context(t))
				if err != nil {
					t.Fatal(err)
				}
				if samples[0].Time == 1_000_000 {
					break
				}
				if samples[0].Time != last+1 {
					t.Fatalf("%d follows %d", samples[0].Time, last)
				}
				last = samples[0].Time
			}
			if last < filledSamples-1 {
				t.Fatalf("%d samples are left of %d", last, filledSamples)
			}
		})
	}
}

// unwitnessed makes a directory as a crash leaves it, of samples that were stored
// after the last heartbeat.
func unwitnessed(t *testing.T, dir string) {
	t.Helper()
	running := filepath.Join(t.TempDir(), "running")
	e, err := cluster.Open(t.Context(), restful(running))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i := range filledSamples {
		if err := e.Append(t.Context(), []vehicle.Sample{sample("carA", int64(i+1), 30)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(dir, os.DirFS(running)); err != nil {
		t.Fatal(err)
	}
}

// A torn end is no excuse in a block that was finished, unless the operator
// chose not to sync each write.
func TestTornFinishedBlock(t *testing.T) {
	t.Parallel()
	dir := copyDir(t, crashedDir(t))
	file := blockFile(t, dir, codec.Telemetry)
	content := block(t, dir, codec.Telemetry)
	put(t, file, string(content[:len(content)-5]))
	put(t, filepath.Join(filepath.Dir(file), "2.blk"), "")
	refused(t, cluster.Config{DataDir: dir}, "damaged (stream TELEMETRY, block 1")
	e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir, SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// A block that is gone after a clean stop.
func TestMissingBlock(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	whole := filledDir(t)
	for _, name := range []string{codec.Telemetry, codec.States, codec.Tokens} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, whole)
			if err := os.Remove(blockFile(t, dir, name)); err != nil {
				t.Fatal(err)
			}
			// The server puts an empty one in its place.
			refused(t, cluster.Config{DataDir: dir}, "damaged (stream "+name)
			refused(t, cluster.Config{DataDir: dir}, "damaged (stream "+name)
		})
	}
}

// A whole directory opens again with everything in it, also when overwritten
// records were tidied up and files were copied.
func TestWholeDirectoryOpens(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := copyDir(t, filledDir(t))
	for range 3 {
		e, err := cluster.Open(t.Context(), cluster.Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Run("content", func(t *testing.T) {
			_, tables := storetest.RunKeeper(t, e, store.Config{})
			if tables.Tokens.Len() != filledTokens {
				t.Errorf("%d tokens; want %d", tables.Tokens.Len(), filledTokens)
			}
			for _, g := range tables.Tokens.All() {
				if !g.Vehicles.Include("carB") || g.Operations != access.AllOperations {
					t.Errorf("token %s lost its grants", g.Name)
				}
			}
			if n := len(storetest.StoredStates(t, e, 0)); n != filledStates {
				t.Errorf("%d states; want %d", n, filledStates)
			}
		})
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func blockFile(t *testing.T, dir, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "engine", "jetstream", "$G", "streams", name, "msgs", "*.blk"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s has the blocks %v, %v; want one", name, files, err)
	}
	return files[0]
}

func block(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(blockFile(t, dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
