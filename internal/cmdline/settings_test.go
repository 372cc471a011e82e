package cmdline_test

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/testkit"
)

func TestUnknownVariables(t *testing.T) {
	for _, name := range []string{"CARSTATE_MAX_AGE", "CARSTATE_MAX_AEG", "OTHER_MAX_AEG"} {
		t.Setenv(name, "1m")
	}
	var commands struct {
		Serve struct{ MaxAge string } `cmd:""`
	}
	parser, err := kong.New(&commands, kong.DefaultEnvars("CARSTATE"))
	testkit.NoError(t, err)
	got := cmdline.UnknownVariables(parser.Model.Node, "CARSTATE_")
	if want := []string{"CARSTATE_MAX_AEG"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
