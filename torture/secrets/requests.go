package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/mqtt"
)

func (r *round) feed(ctx context.Context) {
	upload := func(head, body string) []byte {
		return r.send(ctx, "the answers of ingest", nodeprocess.Ingest,
			fmt.Sprintf("%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", head, len(body), body), nil)
	}
	for _, card := range r.cards {
		for i, head := range heads {
			body := bodies[r.rng.IntN(len(bodies))]
			if i == 0 {
				body = bodies[0]
			}
			answer := upload(r.fill(card, head), r.fill(card, body))
			if i == 0 && card.what == "a source's key" && !bytes.HasPrefix(answer, []byte("HTTP/1.1 202")) {
				must.Fail("good telemetry was not accepted: %.100s", answer)
			}
		}
		for _, body := range bodies { // of a source that may send
			upload(r.fill(card, strings.Replace(heads[0], "TOKEN", "GOOD", 1)), r.fill(card, body))
		}
	}
}

func (r *round) fill(card card, text string) string {
	return strings.NewReplacer("TOKEN", card.text, "VID", r.vid, "GOOD", r.text("a source's key"), "NOW",
		fmt.Sprint(time.Now().UnixMilli())).Replace(text)
}

func (r *round) publish(ctx context.Context) {
	const place = "the answers of MQTT"
	puback, pong := []byte{0x40}, []byte{0xd0, 0}
	for _, card := range r.cards {
		for _, line := range connects {
			good := strings.HasPrefix(line, "car1|")
			for _, version := range []byte{4, 5} {
				answer := r.send(ctx, place, nodeprocess.MQTT, packets(version, r.fill(card, line)), func(got []byte) bool {
					return bytes.Contains(got, pong) && (!good || bytes.Contains(got, puback))
				})
				if good && !bytes.Contains(answer, puback) {
					must.Fail("a good message was not acknowledged")
				}
			}
		}
		r.send(ctx, place, nodeprocess.MQTT, card.text, nil)
	}
}

func packets(version byte, line string) string {
	f := strings.Split(line, "|")
	will, topic, payload, filter := f[3], f[4], f[5], f[6]
	l := mqtt.Login{Protocol: "MQTT", Version: version, Flags: 2, KeepAlive: 60, ID: f[0], User: f[1], Key: f[2],
		WillTopic: will, Will: will}
	if will != "" {
		l.Flags |= 4
	}
	all := l.Packet()
	if topic != "" {
		all = append(all, mqtt.Publish(version, 2, 1, topic, payload)...)
	}
	if filter != "" {
		all = append(all, mqtt.Subscribe(version, 2, filter)...)
	}
	return string(append(all, 0xc0, 0)) // no further answer follows its answer
}

const patience = 30 * time.Second

func (r *round) send(ctx context.Context, place, listener, text string, enough func([]byte) bool) (got []byte) {
	var d net.Dialer
	c := must.Get(d.DialContext(ctx, "tcp", r.node.Address(listener)))
	defer c.Close()
	r.a.Offered(1)
	must.Do(c.SetDeadline(time.Now().Add(patience)))
	_, _ = io.WriteString(c, text)
	if !strings.Contains(text, "Connection: close") && enough == nil {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	buf := make([]byte, 16<<10)
	var err error
	for err == nil && (enough == nil || !enough(got)) {
		var n int
		n, err = c.Read(buf)
		got = append(got, buf[:n]...)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		must.Fail("a connection was neither answered nor closed")
	}
	if len(got) > 0 {
		r.a.Acknowledged(1)
	}
	r.look(place, got, r.secrets)
	return got
}

func (r *round) ask(ctx context.Context) {
	must.Do(r.node.AwaitAnswer(ctx, patience, r.text("a token"), r.vid, time.Time{}))
	caller := 0
	for _, card := range r.cards {
		fill := strings.NewReplacer("/D", nodeprocess.DrivingPath, "/T?", nodeprocess.ThrottlePath+"?", "TOKEN", card.text,
			"VID", r.vid, "LONG", strings.Repeat("x", 9000))
		for _, i := range r.rng.Perm(len(queries)) {
			caller++
			text := fill.Replace(queries[i])
			if strings.HasSuffix(text, "\r\n") {
				if !strings.Contains(text, "X-Forwarded-For") {
					text += fmt.Sprintf("X-Forwarded-For: 10.0.%d.%d\r\n", caller>>8, caller&255)
				}
				text += "Connection: close\r\n\r\n"
			}
			r.send(ctx, "the answers of the query listener", nodeprocess.Query, text, nil)
		}
	}
}

func cut(line string) (methodAndPath, body string) {
	path := strings.Index(line, " ") + 1
	head, body, _ := strings.Cut(line[path:], " ")
	return line[:path] + head, body
}

func (r *round) operate(ctx context.Context) {
	for _, card := range r.cards {
		for _, i := range r.rng.Perm(len(calls)) {
			head, body := cut(r.fill(card, calls[i]))
			for _, key := range []string{"Bearer " + r.admin.Key, "Bearer " + card.text, "Basic " + card.text, ""} {
				if key == "Bearer "+r.admin.Key && strings.Contains(calls[i], `"name":"TOKEN"`) && r.rng.IntN(4) > 0 {
					continue
				}
				head := head + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
				if key != "" {
					head += "Authorization: " + key + "\r\n"
				}
				if body != "" {
					head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
				}
				r.send(ctx, "the answer of the admin API to `"+calls[i]+"`", nodeprocess.Admin, head+"\r\n"+body, nil)
			}
		}
		r.send(ctx, "the answers of the admin API", nodeprocess.Admin,
			"GET / HTTP/1.1\r\nHost: "+card.text+"\r\nOrigin: http://"+card.text+
				"\r\nCookie: carstate-session="+card.text+"\r\nConnection: close\r\n\r\n", nil)
	}
}

var (
	secretPattern = regexp.MustCompile(`cs[a-z]*_[0-9A-Za-z]{36}`)
	cookiePattern = regexp.MustCompile(`(?i)\r\nSet-Cookie: carstate-session=([^;\r]*); Path=([^;\r]*)`)
	markPattern   = regexp.MustCompile(`name="mark" value="([^"]+)"`)
	rotatePattern = regexp.MustCompile(`action="/s/\w+(/(?:tokens|sources|operators)/[^"]+/rotate)"`)
)

func (r *round) browse(ctx context.Context) {
	for _, card := range r.cards[:given] { // the console adds new secrets
		for _, form := range logins {
			b := browser{round: r}
			b.do(ctx, "POST /login?key="+card.text+" "+r.fill(card, form))
		}
	}
	for _, who := range []string{"the admin key", "a rotated operator's key"} {
		b := browser{round: r}
		b.do(ctx, "POST /login next=/tokens&key="+r.text(who))
		if b.cookie == "" {
			must.Fail("%s did not open the console", who)
		}
		b.pages(ctx)
		for _, card := range r.cards[:given] {
			for _, page := range pages {
				b.do(ctx, r.fill(card, page))
			}
		}
		b.do(ctx, "POST /logout")
	}
}

type browser struct {
	*round
	cookie string
	root   string
}

// With status 201, the page has a new secret.
func (b *browser) do(ctx context.Context, line string) string {
	// HTTP/1.0 has no chunked encoding, which could split a secret.
	what, form := cut(line)
	method, path, _ := strings.Cut(what, " ")
	text := method + " " + b.root + strings.TrimSuffix(path, "/") + " HTTP/1.0\r\n" +
		"Host: " + b.node.Address(nodeprocess.Admin) + "\r\n" +
		"Connection: close\r\nCookie: carstate-session=" + b.cookie + "\r\n"
	if strings.HasPrefix(what, "POST ") {
		text += fmt.Sprintf("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n", len(form))
	}
	answer := b.send(ctx, "a page of the console, `"+what+"`", nodeprocess.Admin, text+"\r\n"+form, nil)
	head, page, _ := strings.Cut(string(answer), "\r\n\r\n")
	if cookie := cookiePattern.FindStringSubmatch(head); cookie != nil {
		if b.cookie, b.root = cookie[1], cookie[2]; b.cookie != "" {
			b.secrets.add("the cookie of a session", b.cookie, 0)
		}
	}
	if strings.HasPrefix(head, "HTTP/1.0 201") {
		for _, secret := range secretPattern.FindAllString(page, 1) {
			b.newSecret("a secret that the console handed out", secret)
			b.succeeded(what)
		}
	}
	return page
}

func (b *browser) pages(ctx context.Context) {
	for _, path := range []string{"/tokens", "/sources", "/operators"} {
		page := b.do(ctx, "GET "+path)
		form := url.Values{"developer": {"Ada"}, "operation": {"throttle_system"}, "scope": {"all"}, "days": {"30"},
			"name": {"n" + fmt.Sprint(b.rng.IntN(1e9))}}
		if mark := markPattern.FindStringSubmatch(page); mark != nil {
			form.Set("mark", mark[1])
		}
		for range 2 {
			b.do(ctx, "POST "+path+" "+form.Encode())
		}
		page = b.do(ctx, "GET "+path)
		if to := rotatePattern.FindStringSubmatch(page); to != nil && path != "/operators" {
			form.Set("mark", fmt.Sprint(b.rng.Uint64()))
			form.Set("overlap", "0")
			b.do(ctx, "POST "+to[1]+" "+form.Encode())
		}
	}
	for _, path := range []string{"/", "/vehicles", "/vehicles/" + b.vid, "/tokens", "/sources", "/operators", "/audit"} {
		b.do(ctx, "GET "+path)
	}
}

var typedWhole = []string{"a token", "a source's key", "the admin key"}

const typedOthers = 10

// Each secret of typedWhole and a random further one are in every command line.
func (r *round) typeCommands(ctx context.Context) {
	cards := slices.Clone(r.cards[:given])
	r.rng.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	drawn := slices.IndexFunc(cards, func(c card) bool { return !slices.Contains(typedWhole, c.what) })
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
	const atOnce = 8
	must.Together(ctx, atOnce, func(ctx context.Context, worker int) {
		for i := worker; i < len(all); i += atOnce {
			r.typed(ctx, all[i])
		}
	})
	for _, file := range backups {
		text := must.Get(os.ReadFile(file))
		if len(text) < 1000 {
			must.Fail("the backup is nearly empty")
		}
		r.look("the backup", text, r.secrets)
	}
}

func writeFiles(dir, secret string) {
	for name, text := range map[string]string{
		"file":              secret + "\n" + secret,
		"keyfile":           secret,
		"drive.csv":         string(must.Get(files.ReadFile("drive.csv"))),
		"foreign/" + secret: secret,
		"badkey/admin.key":  secret + secret + "\n",
	} {
		file := filepath.Join(dir, name)
		must.Do(os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(os.WriteFile(file, []byte(text), 0o600))
	}
}

type command struct{ dir, as, line string } // as is the template of the line

func (r *round) typed(ctx context.Context, c command) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	env := append(os.Environ(), "CARSTATE_DATA_DIR="+filepath.Join(r.dir, "data"))
	for _, of := range []string{nodeprocess.Admin, nodeprocess.Ingest, nodeprocess.MQTT, nodeprocess.Query} {
		env = append(env, "CARSTATE_"+strings.ToUpper(strings.ReplaceAll(of, "-", "_"))+"="+r.node.Address(of))
	}
	var args []string
	for word := range strings.FieldsSeq(c.line) {
		if len(args) == 0 && strings.Contains(word, "=") && !strings.HasPrefix(word, "-") {
			env = append(env, word)
		} else {
			args = append(args, word)
		}
	}
	cmd := exec.CommandContext(ctx, r.a.Binary, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = c.dir, env, time.Second
	text, err := cmd.CombinedOutput()
	r.a.Offered(1)
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended && !errors.Is(err, context.DeadlineExceeded) {
		must.Do(err)
	}
	if len(text) > 0 {
		r.a.Acknowledged(1)
	}
	r.look("what `"+c.as+"` says", text, r.secrets)
	if err == nil {
		r.succeeded(c.as)
	}
}

func (r *round) forget(ctx context.Context) {
	for _, vid := range []string{"NEVERSEEN1", r.vid} {
		receipt := must.Get(r.admin.Forget(ctx, vehicle.ID(vid)))
		r.look("a receipt", fmt.Appendf(nil, "%+v", receipt), r.secrets, r.names)
	}
}
