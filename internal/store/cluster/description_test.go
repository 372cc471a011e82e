package cluster

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"carstate/internal/road/roadtest"
	"carstate/internal/store/cluster/embedded"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
	"carstate/internal/vehicle"
)

// A stream whose making a power cut interrupted between description and checksum is
// whole at every start that follows.
func TestDescriptionWithoutChecksum(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	dir := t.TempDir()
	want := map[vehicle.ID]vehicle.State{"car": roadtest.State(t)}
	e := storedStates(t, dir, want)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range codec.Streams {
		sum := filepath.Join(embedded.StreamDir(dir, name), "meta.sum")
		was, err := os.ReadFile(sum)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(sum); err != nil {
			t.Fatal(err)
		}
		opened, _ := followed(t, dir)
		if len(opened.m) != 1 {
			t.Errorf("without the checksum of %s: %d states are there", name, len(opened.m))
		}
		if is, err := os.ReadFile(sum); err != nil || !bytes.Equal(is, was) {
			t.Errorf("the checksum of %s is %q, %v; want %q", name, is, err, was)
		}
	}

	// As the cut leaves it: no stream is finished, and one has its description.
	again := t.TempDir()
	if err := os.MkdirAll(embedded.StreamDir(again, codec.Tokens), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(embedded.StreamDir(dir, codec.Tokens), "meta.inf"))
	if err != nil {
		t.Fatal(err)
	}
	first := t.TempDir()
	if err := storedStates(t, first, nil).Close(); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(filepath.Join(first, "carstate.json"))
	var id map[string]any
	if err == nil {
		err = json.Unmarshal(made, &id)
	}
	if err != nil || id["ready"] != true {
		t.Fatalf("%+v, %v", id, err)
	}
	id["ready"] = false
	delete(id, "closed")
	if made, err = json.Marshal(id); err == nil {
		err = os.WriteFile(filepath.Join(again, "carstate.json"), made, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(embedded.StreamDir(again, codec.Tokens), "meta.inf"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	e = storedStates(t, again, maps.Clone(want))
	crashed := t.TempDir()
	if err := os.CopyFS(crashed, os.DirFS(again)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{again, crashed} {
		if opened, _ := followed(t, dir); len(opened.m) != 1 {
			t.Errorf("%d states are there", len(opened.m))
		}
	}
}
