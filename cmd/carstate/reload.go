package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/node"
	"example.org/carstate/internal/servicelog"
)

// reloader reads the settings of a running service again and applies them.
type reloader struct {
	node    *node.Node
	log     *slog.Logger
	args    []string          // the command line
	running map[string]string // the settings in use, by the names of their flags
}

// reload reads the settings again, as at the start: from the command line, the environment and the
// configuration file. It applies those that can change without a restart. It logs the names of the
// settings that it changed, and the names of the changed settings that take effect only after a
// restart. If any setting is wrong, reload changes nothing and logs the error.
func (r *reloader) reload() {
	var cmds commands
	given, err := newParser(&cmds, io.Discard, io.Discard).Parse(r.args)
	var config node.Config
	if err == nil {
		_, level := servicelog.New(io.Discard, cmds.Serve.LogLevel, cmds.Serve.LogFormat)
		config, err = cmds.Serve.node(nil, level)
	}
	if err != nil {
		r.log.Error("the settings are invalid and nothing was changed: correct them and send SIGHUP again",
			"error", cmdline.Unquoted(err))
		return
	}
	found := cmds.Serve.settings.Values(given)
	r.node.Reload(config)
	changed, restart := "", ""
	for _, name := range slices.Sorted(maps.Keys(found)) {
		switch {
		case found[name] == r.running[name]:
		case slices.Contains(node.Reloadable, name):
			changed = strings.TrimPrefix(changed+","+name, ",")
			r.running[name] = found[name]
		default:
			restart = strings.TrimPrefix(restart+","+name, ",")
		}
	}
	level := slog.LevelInfo
	if restart != "" {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "reloaded the settings",
		"changed", cmp.Or(changed, "-"), "needs_restart", cmp.Or(restart, "-"))
}
