package main

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// The linker sets both in a release build.
var version, commit = "development", "unknown"

func init() {
	// `go install` sets no variables, but records a downloaded module's version.
	if info, ok := debug.ReadBuildInfo(); ok && version == "development" && info.Main.Sum != "" {
		version = info.Main.Version
	}
}

type versionCommand struct {
	JSON bool `name:"json" help:"Print one JSON value: the version, the commit, and each module in the binary with its version and checksum."`
}

func (c *versionCommand) Run(w streams) error {
	type module struct {
		Path    string `json:"path"`
		Version string `json:"version"`
		Sum     string `json:"sum"`
	}
	type build struct {
		Version  string   `json:"version"`
		Commit   string   `json:"commit"`
		Go       string   `json:"go"`
		Platform string   `json:"platform"`
		Modules  []module `json:"modules"`
	}
	b := build{version, commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, nil}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			own := strings.Replace(m.Version, "(devel)", version, 1) // of our client, whose directory go.work names
			b.Modules = append(b.Modules, module{m.Path, own, m.Sum})
		}
	}
	return w.show(b)
}
