package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// drive is a recorded drive, as input for the command replay.
const drive = "Time,Engine Coolant Temperature [°C],Intake Manifold Absolute Pressure [kPa],Engine RPM [RPM],Vehicle " +
	"Speed Sensor [km/h],Intake Air Temperature [°C],Air Flow Rate from Mass Flow Sensor [g/s],Absolute Throttle " +
	"Position [%],Ambient Air Temperature [°C],Accelerator Pedal Position D [%],Accelerator Pedal Position E [%]\n" +
	"23:59:58.000,91,101.0,810.0,10.0,22.0,4.11,13.5,15.0,14.1,14.5\n" +
	"23:59:59.000,91,101.0,820.0,12.0,22.0,4.19,14.5,15.0,14.1,14.5\n"

// typedWhole names the secrets with which typeCommands always runs every command line.
var typedWhole = []string{"a token", "a source's key", "the admin key"}

// typedOthers is the number of command lines, chosen at random, that are run with each of the other
// secrets.
const typedOthers = 10

// typeCommands runs every command line with each secret of typedWhole and with one more secret,
// chosen at random. With each remaining secret it runs typedOthers command lines.
func (r *round) typeCommands(ctx context.Context) {
	cards := slices.Clone(r.cards[:given])
	r.rng.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	drawn := slices.IndexFunc(cards, func(c card) bool { return !slices.Contains(typedWhole, c.what) })
	type command struct{ dir, as, line string }
	var all []command
	var backups []string
	for n, card := range cards {
		dir := filepath.Join(r.dir, "files", fmt.Sprint(n))
		writeFiles(dir, card.text)
		lines := r.rng.Perm(len(commands))
		if n == drawn || slices.Contains(typedWhole, card.what) {
			backups = append(backups, filepath.Join(dir, "fleet.backup"))
		} else {
			lines = lines[:typedOthers]
		}
		fill := strings.NewReplacer("{token}", card.text, "{vid}", r.vid, "{ingest}", r.node.Address(nodeprocess.Ingest),
			"{mqtt}", r.node.Address(nodeprocess.MQTT),
			"{ports}", "--query-addr 127.0.0.1:0 --ingest-addr 127.0.0.1:0 --mqtt-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0")
		for _, i := range lines {
			all = append(all, command{dir, commands[i], fill.Replace(commands[i])})
		}
	}
	r.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	some := make(chan struct{}, 8) // limits concurrency; most of the commands wait
	errs := make(chan error, len(all))
	for _, c := range all {
		some <- struct{}{}
		go func() {
			errs <- r.typed(ctx, c.dir, c.as, c.line)
			<-some
		}()
	}
	var err error
	for range all {
		err = errors.Join(err, <-errs)
	}
	must.Do(err)
	for _, file := range backups {
		r.backedUp(file)
	}
}

// writeFiles writes the files to which the command lines refer, for one secret.
func writeFiles(dir, secret string) {
	for name, text := range map[string]string{
		"file":              secret + "\n" + secret,
		"keyfile":           secret,
		"drive.csv":         drive,
		"foreign/" + secret: secret,
		"badkey/admin.key":  secret + secret + "\n",
		"config1":           "log-level = " + secret + "\n",
		"config2":           secret + " = " + secret + "\n",
		"config3":           "nats = nats://a:" + secret + "@127.0.0.1:1\n",
		"config4":           "no-docs = " + secret + "\nmax-age = " + secret + "\n" + secret + "\n",
	} {
		file := filepath.Join(dir, name)
		must.Do(os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(os.WriteFile(file, []byte(text), 0o600))
	}
}

// typed runs one command line in dir. as is the template of the line. If a command does not end,
// typed stops it, and searches the output that the command has written so far.
func (r *round) typed(ctx context.Context, dir, as, line string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	var env, args []string
	for word := range strings.FieldsSeq(line) {
		if len(args) == 0 && strings.Contains(word, "=") && !strings.HasPrefix(word, "-") {
			env = append(env, word)
		} else {
			args = append(args, word)
		}
	}
	return r.command(ctx, dir, as, env, args...)
}

// backedUp searches the backup, which may contain only hashes.
func (r *round) backedUp(file string) {
	text := must.Get(os.ReadFile(file))
	if len(text) < 1000 {
		must.Fail("the backup is nearly empty")
	}
	r.look("the backup", text, r.secrets)
}

// forget forgets the vehicle, and searches the confirmation that the service returns.
func (r *round) forget(ctx context.Context) {
	for _, vid := range []string{"NEVERSEEN1", r.vid} {
		receipt := must.Get(r.admin.Forget(ctx, vehicle.ID(vid)))
		r.look("a receipt", fmt.Appendf(nil, "%+v", receipt), r.secrets, r.names)
	}
}
