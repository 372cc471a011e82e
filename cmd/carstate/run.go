package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/term"
)

// Each flag without env:"-" can also be set by an environment variable: --query-addr by
// CARSTATE_QUERY_ADDR, for example.
type commands struct {
	Serve    serveCommand    `cmd:"" help:"Run the service."`
	Demo     demoCommand     `cmd:"" help:"Run the service on a recorded drive and print queries to paste."`
	Token    tokenCommand    `cmd:"" help:"Issue, list and revoke the access tokens of developers."`
	Source   sourceCommand   `cmd:"" help:"Add, list and remove the cars and gateways that may send telemetry."`
	Format   formatCommand   `cmd:"" help:"List, show and try the formats of senders that a source or a log can have."`
	Operator operatorCommand `cmd:"" help:"Add, list and remove the people who run the service; rotate the admin key."`
	Replay   replayCommand   `cmd:"" help:"Send recorded drives, or a whole fleet, to a running service."`
	Pull     pullCommand     `cmd:"" help:"Take telemetry from MQTT, Kafka, NATS or VISS, and send it to a running service."`
	Simulate simulateCommand `cmd:"" help:"Send a simulated fleet in traffic to a running service, and compare its verdicts with the truth."`
	Evaluate evaluateCommand `cmd:"" help:"Run the rules over recorded drives, or a whole fleet, and print how they did."`
	Query    queryCommand    `cmd:"" help:"Ask a running service about a vehicle, as a developer does."`
	Vehicles vehiclesCommand `cmd:"" help:"List vehicles, those in trouble first, or export them."`
	Explain  explainCommand  `cmd:"" help:"Explain both verdicts about a vehicle."`
	Relearn  relearnCommand  `cmd:"" help:"Learn the throttle of a vehicle again, after a repair."`
	Audit    auditCommand    `cmd:"" help:"Show who did what: by operator, action, time or vehicle."`
	Forget   forgetCommand   `cmd:"" help:"Erase a vehicle everywhere, with a receipt."`
	Roads    roadsCommand    `cmd:"" help:"Forget what is known of roads."`
	Backup   backupCommand   `cmd:"" help:"Write tokens, sources, states and tombstones of a running service to a file."`
	Restore  restoreCommand  `cmd:"" help:"Restore a backup into a running service that is empty, or compare the two."`
	Check    checkCommand    `cmd:"" help:"Check whether everything in a stopped service's data directory can be read."`
	Status   statusCommand   `cmd:"" help:"Show the status of a running service: health, version, counts, disk, last backup."`
	Health   healthCommand   `cmd:"" help:"Check whether a running service is ready."`
	LogLevel logLevelCommand `cmd:"" help:"Show or change the log level of a running node."`
	ReadOnly readOnlyCommand `cmd:"" help:"Make a running node refuse telemetry, for maintenance, or accept it again."`
	Version  versionCommand  `cmd:"" help:"Print the version."`

	Completion completionCommand `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:"" help:"Print the possible next words, for a shell."`
	Help       helpCommand       `cmd:"" help:"Print the help of a command."`
}

var errHelped = errors.New("the help was printed")

func newParser(cmds *commands, help, stderr io.Writer) *kong.Kong {
	return kong.Must(cmds,
		kong.Name("carstate"),
		kong.Description("Is this car driving normally, slowly or in a traffic jam? Is its throttle system healthy?"),
		kong.Writers(help, stderr),
		kong.Help(func(o kong.HelpOptions, c *kong.Context) error {
			return cmp.Or(kong.DefaultHelpPrinter(o, c), errHelped)
		}),
		kong.DefaultEnvars("CARSTATE"),
		longHelp,
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, Summary: false}),
	)
}

// run returns the exit code. It writes an error to stderr in one line, and after a wrong flag or
// argument a second line about help.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 1 && args[0] == "--version":
		args = []string{"version"}
	case len(args) > 0 && args[0] == "help":
		args = append([]string{"--help"}, args[1:]...)
	}
	help := stdout // the parser must see the terminal itself, to measure its width
	out, errs := term.NewPrintable(stdout), term.NewPrintable(stderr)
	defer out.End()
	defer errs.End()
	stdout, stderr = out, errs
	var cmds commands
	parser := newParser(&cmds, help, stderr)
	named, _ := kong.Trace(parser, args) // Parse returns its error
	command := cmp.Or(named.Selected(), parser.Model.Node)
	if named.Error == nil && (len(command.Children) > 0 || command.Name == "help") {
		args = append([]string{"--help"}, args...) // it cannot run; first, because args may have a --
	}
	wrongUsage := exitUsage
	if command.Name == "serve" {
		wrongUsage = exitConfig
	}
	parsed, err := parser.Parse(args)
	switch {
	case errors.Is(err, syscall.EPIPE):
		return exitPipe
	case errors.Is(err, errHelped):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "carstate: %s%s\nTry: %s --help\n", cmdline.Unquoted(err),
			cmdline.ExampleOf(command, err), command.FullPath())
		return wrongUsage
	}
	if command.Name != "serve" && command.Name != "demo" { // they read files again on SIGHUP
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal was closed
		defer stop()
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	json := slices.ContainsFunc(parsed.Flags(), func(f *kong.Flag) bool { return f.Name == "json" && f.Target.Bool() })
	parsed.Bind(streams{stdout, stderr, command.Path(), json})
	err = parsed.Run()
	switch {
	case err == nil, errors.Is(err, errHelped):
		return exitOK
	case errors.Is(err, syscall.EPIPE):
		return exitPipe // the reader has seen enough
	case errors.Is(err, errNoAnswer):
		return exitNoAnswer // the reason is on stdout
	}
	code := exitError
	switch {
	case errors.Is(err, store.ErrConfig):
		code = wrongUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		partial, _ := errors.AsType[partialError](err)
		code, err = exitStopped, errors.New("stopped before it was done"+partial.text)
	}
	fmt.Fprintf(stderr, "carstate: %s\n", access.OneLine(err))
	return code
}
