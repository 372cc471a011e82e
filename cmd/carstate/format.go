package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"example.org/carstate/internal/format"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/vehicle"
)

type formatFlags struct {
	Format     string `env:"-" xor:"format" placeholder:"NAME" help:"Format of what is sent: a preset, such as traccar (carstate format list), or own for the service's own."`
	FormatFile string `env:"-" xor:"format" placeholder:"FILE" help:"The same as a mapping in YAML (docs/connect.md)."`
}

func (c *formatFlags) given() bool { return c.Format != "" || c.FormatFile != "" }

// parse returns nil for the service's own format.
func (c *formatFlags) parse() (*format.Format, error) {
	flag, text := "--format", c.Format
	switch {
	case text == "own":
		return nil, nil
	case c.FormatFile != "":
		b, err := os.ReadFile(c.FormatFile)
		if err != nil {
			return nil, fmt.Errorf("the mapping cannot be read: %w", err)
		}
		flag, text = "--format-file", string(b)+"\n" // a line end is in no preset's name
	}
	f, err := format.Parse(text)
	if err != nil {
		return nil, usageError("%s: %v", flag, err)
	}
	return f, nil
}

// logFormat returns nil if no format is given: the format of each file is then recognized.
func (c *formatFlags) logFormat() (*format.Format, error) {
	if c.Format == "own" {
		return format.Parse("lenient")
	}
	return c.parse()
}

type formatCommand struct {
	List formatList `cmd:"" help:"List the formats of known senders."`
	Show formatShow `cmd:"" help:"Print the mapping of a format, as a model for one of your own."`
	Try  formatTry  `cmd:"" help:"Read a message from standard input, and print the samples or what is wrong."`
}

type formatList struct{}

func (formatList) Run(w streams) error {
	names, abouts := format.Presets()
	return w.show(struct{ Names, Abouts []string }{names, abouts})
}

type formatShow struct {
	Name string `arg:"" help:"A format of carstate format list."`
}

func (c *formatShow) Run(w streams) error {
	text, err := format.Text(c.Name)
	if err != nil {
		return usageError("%v", err)
	}
	_, err = io.WriteString(w.out, text)
	return err
}

type formatTry struct {
	Name  string `arg:"" help:"A format of carstate format list, or the file of a mapping."`
	Topic string `env:"-" help:"The MQTT topic of the message."`
	VID   string `env:"-" name:"vid" placeholder:"VID" help:"The vehicle of a message that names none."`
}

func (c *formatTry) Run(ctx context.Context, w streams) error {
	f, err := (&formatFlags{Format: c.Name}).parse()
	if _, failed := os.Stat(c.Name); err != nil && failed == nil {
		f, err = (&formatFlags{FormatFile: c.Name}).parse()
	}
	if err != nil {
		return err
	}
	if f == nil {
		return usageError("the service's own format needs no mapping: docs/telemetry.md")
	}
	body, err := io.ReadAll(io.LimitReader(os.Stdin, telemetry.MaxMapped+1))
	if err != nil {
		return fmt.Errorf("the message cannot be read: %w", err)
	}
	if len(body) > telemetry.MaxMapped {
		return usageError("a message has at most %d bytes", telemetry.MaxMapped)
	}
	m := format.Message{Body: body, Topic: c.Topic, Vehicle: vehicle.ID(c.VID), Now: signal.At(time.Now())}
	samples, wrong := 0, 0
	format.NewDecoder().Decode(f, m, func(s *format.Sample) bool {
		samples++
		switch {
		case s.Err != nil:
			wrong++
			fmt.Fprintf(w.err, "%d: refused: %v", samples, s.Err)
			if at := map[error][]string{format.ErrNoVID: f.VID.Path, format.ErrNoTime: f.Time.Path,
				format.ErrTime: f.Time.Path}[s.Err]; at != nil {
				fmt.Fprintf(w.err, ": %s", strings.Join(at, ", "))
			}
			if c.Topic == "" && (s.Err == format.ErrTopic || s.Err == format.ErrNoVID && f.VID.Topic != nil) {
				fmt.Fprint(w.err, "; give its topic (--topic)")
			}
			fmt.Fprintln(w.err)
		case s.Skipped:
			fmt.Fprintf(w.err, "%d: skipped: a condition of the mapping\n", samples)
		default:
			_, err = w.out.Write(telemetry.AppendJSON(nil, &s.Sample))
			if s.Empty() {
				fmt.Fprintf(w.err, "%d: no signal of the mapping\n", samples)
			}
			for _, u := range s.Unused {
				fmt.Fprintf(w.err, "%d: %s is not used: %v\n", samples, u.Signal, u.Err)
			}
		}
		return ctx.Err() == nil && err == nil
	})
	switch {
	case err != nil:
		return err
	case samples == 0:
		return usageError("the message is empty")
	case wrong > 0:
		return fmt.Errorf("%d of %d samples were refused", wrong, samples)
	}
	return nil
}
