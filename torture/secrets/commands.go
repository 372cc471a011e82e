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

	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// commands are command lines of carstate, with secrets where they belong and where
// they do not. What has the form NAME=VALUE is for the environment.
var commands = []string{
	"token list", "token list --json", "source list", "operator list", "explain {vid}", "explain {token}", "token show {token}", "token revoke {token}", "token rotate {token} --overlap 0s",
	"token grant {token} --add {vid}", "token grant cstid000000000000 --add {token}", "token issue --developer Ada --vehicles all", "token issue --developer {token} --vehicles all", "token issue --developer Ada --vehicles {token}",
	"token issue --developer Ada --vehicles all --operations {token}", "token issue --developer Ada --vehicles all --expires {token}", "token issue --developer Ada --vehicles all --rate {token}",
	"token issue --developer Ada --vehicles @{token}", "source add {token} --vehicles all", "source show {token}", "source remove {token}", "source rotate {token}", "operator add {token}", "operator rotate {token}",
	"operator remove {token}", "forget {token}", "{token}", "token {token}", "serve --{token}", "serve {token}", "version {token}", "query --token", "token show --admin-addr {token} x", "token list --key-file {file}",
	"token list --key-file {keyfile}", "CARSTATE_KEY_FILE={token} token list", "token list --admin-addr http://{token}:{token}@127.0.0.1:1",
	"query car-driving-state {vid} --token {token}", "CARSTATE_TOKEN={token} query throttle-system {vid}", "CARSTATE_TOKEN={token} query throttle-system {vid} --json", "CARSTATE_TOKEN={token} query throttle-system {token}",
	"CARSTATE_TOKEN={token} query throttle-system {vid} --url http://a:{token}@127.0.0.1:1", "CARSTATE_TOKEN={token} query throttle-system {vid} --url {token}", "CARSTATE_TOKEN={token} query throttle-system {vid} --query-addr {ingest}",
	"CARSTATE_TOKEN={token} query throttle-system {vid} --query-addr 127.0.0.1:1",
	"replay {drive} --vid {vid} --source gateway --key {token}", "CARSTATE_KEY={token} replay {drive} --vid {vid} --source gateway", "CARSTATE_KEY={token} replay {drive} --vid {vid} --source gateway --mqtt-url mqtt://{mqtt}",
	"replay {drive} --vid {token}", "replay {token} --vid {vid}", "replay {file} --vid {vid}", "replay {drive} --vid {vid} --source {token} --key {token}", "replay {drive} --vid {vid} --source gateway --key {token} --ingest-url http://a:{token}@127.0.0.1:1",
	"replay {drive} --vid {vid} --source gateway --key {token} --mqtt-url mqtt://gateway:{token}@127.0.0.1:1", "replay {drive} --vid {vid} --source gateway --key {token} --ingest-url {token}",
	"simulate --vehicles 2 --duration 300ms --source gateway --key {token} --token {token}", "simulate --vehicles 2 --duration 300ms", "simulate --vehicles {token}", "simulate --prefix {token} --vehicles 2 --duration 300ms",
	"evaluate {file}", "evaluate {token}", "backup {backup} --force", "backup nowhere/{token}", "restore {file}", "restore {token}", "restore {backup} --forgotten {file}",
	"serve --check --config {file}", "serve --check --config {config1}", "serve --check --config {config2}", "serve --check --config {config3}", "serve --check --config {config4}", "serve --config {token}",
	"CARSTATE_LOG_LEVEL={token} serve --check", "CARSTATE_MAX_AGE={token} serve --check", "CARSTATE_QUERY_ADDR={token} serve --check", "CARSTATE_NATS=nats://a:{token}@127.0.0.1:1 serve --check",
	"CARSTATE_NATS=nats://{token}@127.0.0.1:1,nats://b:{token}@127.0.0.1:2 serve --check", "CARSTATE_NATS={token} serve --check", "serve --check --nats nats://a:{token}@127.0.0.1:1 --nats-creds {file}",
	"serve --data-dir other --nats nats://a:{token}@127.0.0.1:1 {ports}", "serve --data-dir other --nats nats://127.0.0.1:1 --nats-creds {file} {ports}", "serve --data-dir other --nats nats://127.0.0.1:1 --nats-creds {token} {ports}",
	"serve --data-dir other --otlp-endpoint http://a:{token}@127.0.0.1:1 {ports}", "serve --data-dir other --otlp-endpoint {token} {ports}", "serve --data-dir other --tls-cert {file} --tls-key {file} {ports}",
	"serve --data-dir foreign {ports}", "serve --data-dir badkey {ports}", "serve --data-dir other --trusted-proxies {token} {ports}", "serve --data-dir other --access-log nowhere/{token} {ports}",
	"CARSTATE_DATA_DIR=badkey token list",
}

// drive is a recorded drive, so that replay has something to send.
const drive = "Time,Engine Coolant Temperature [°C],Intake Manifold Absolute Pressure [kPa],Engine RPM [RPM],Vehicle Speed Sensor [km/h],Intake Air Temperature [°C],Air Flow Rate from Mass Flow Sensor [g/s],Absolute Throttle Position [%],Ambient Air Temperature [°C],Accelerator Pedal Position D [%],Accelerator Pedal Position E [%]\n" +
	"23:59:58.000,91,101.0,810.0,10.0,22.0,4.11,13.5,15.0,14.1,14.5\n23:59:59.000,91,101.0,820.0,12.0,22.0,4.19,14.5,15.0,14.1,14.5\n"

// typedWhole are the secrets that every command line is tried with; one more is drawn.
var typedWhole = []string{"a token", "a source's key", "the admin key"}

// typedOthers is how many command lines each of the other secrets is tried with, drawn anew for each.
const typedOthers = 10

// typeCommands runs every command line with a few of the secrets, and a few with each of the others.
func (r *round) typeCommands(ctx context.Context) error {
	cards := slices.Clone(r.cards[:given])
	r.rng.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	drawn := slices.IndexFunc(cards, func(c card) bool { return !slices.Contains(typedWhole, c.what) })
	type command struct{ as, line string }
	var all []command
	var backups []string
	for n, card := range cards {
		files := filepath.Join(r.dir, "files", fmt.Sprint(n))
		fill, err := r.writeFiles(files, card)
		if err != nil {
			return err
		}
		lines := r.rng.Perm(len(commands))
		if n == drawn || slices.Contains(typedWhole, card.what) {
			backups = append(backups, filepath.Join(files, "fleet.backup"))
		} else {
			lines = lines[:typedOthers]
		}
		for _, i := range lines {
			all = append(all, command{commands[i], fill.Replace(commands[i])})
		}
	}
	r.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	some := make(chan struct{}, 8) // at once: most of them wait
	errs := make(chan error, len(all))
	for _, c := range all {
		some <- struct{}{}
		go func() {
			errs <- r.typed(ctx, c.as, c.line)
			<-some
		}()
	}
	var err error
	for range all {
		err = errors.Join(err, <-errs)
	}
	for _, file := range backups {
		if err == nil {
			err = r.backedUp(file)
		}
	}
	return err
}

// writeFiles writes what the command lines refer to for one secret, and returns what fills them in.
func (r *round) writeFiles(dir string, card card) (*strings.Replacer, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"file": card.text + "\n" + card.text, "keyfile": card.text, "drive.csv": drive, "foreign/" + card.text: card.text, "badkey/admin.key": card.text + card.text + "\n",
		"config1": "log-level = " + card.text + "\n", "config2": card.text + " = " + card.text + "\n", "config3": "nats = nats://a:" + card.text + "@127.0.0.1:1\n",
		"config4": "no-docs = " + card.text + "\nmax-age = " + card.text + "\n" + card.text + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return strings.NewReplacer("{token}", card.text, "{vid}", r.vid, "{keyfile}", in("keyfile"), "{file}", in("file"), "{drive}", in("drive.csv"), "{backup}", in("fleet.backup"),
		"{config1}", in("config1"), "{config2}", in("config2"), "{config3}", in("config3"), "{config4}", in("config4"), "{ingest}", r.node.Address(nodeprocess.Ingest), "{mqtt}", r.node.Address(nodeprocess.MQTT),
		"{ports}", "--query-addr 127.0.0.1:0 --ingest-addr 127.0.0.1:0 --mqtt-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0",
		"--data-dir other", "--data-dir "+in("other"), "--data-dir foreign", "--data-dir "+in("foreign"), "--data-dir badkey", "--data-dir "+in("badkey"), "_DIR=badkey", "_DIR="+in("badkey")), nil
}

// typed runs one command line; as is what it was filled in from. One that would go on is ended: what it said by
// then counts.
func (r *round) typed(ctx context.Context, as, line string) error {
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
	return r.command(ctx, as, env, args...)
}

// backedUp looks through the backup: only hashes may stand in it.
func (r *round) backedUp(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(text) < 1000 {
		return errors.New("there is hardly a backup")
	}
	r.look("the backup", text, r.secrets)
	return nil
}

// forget forgets the vehicle and looks through the receipt.
func (r *round) forget(ctx context.Context) error {
	receipt, err := r.admin.Forget(ctx, "NEVERSEEN1")
	if err != nil {
		return err
	}
	r.look("a receipt", fmt.Appendf(nil, "%+v", receipt), r.secrets, r.names)
	receipt, err = r.admin.Forget(ctx, vehicle.ID(r.vid))
	if err != nil {
		return err
	}
	r.look("a receipt", fmt.Appendf(nil, "%+v", receipt), r.secrets, r.names)
	return nil
}
