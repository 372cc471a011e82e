//go:build !race

package main_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/test/testkit"
)

// The field cases, NAME.json, are what people send, and what they expect as answers.
const fieldDir = "testdata/field"

type fieldCase struct {
	Name, Kind string
	Question   string // driving, throttle or ingest
	Held       bool   // was right when the case was written

	// Files with a reading on each line. The largest time in Samples, and 0 in Learn, which is sent
	// first, are now.
	Samples, Learn string
	Shift          float64 // degrees of longitude, so that no two cases share a road
	Node           string  // "default", or "" for the node that answers for a month
	Each           bool
	Ask            []fieldAsk

	// Of ingest: bodies to post, and acceptable results. @VID@, @NOW@ and @NOW-3600@ (milliseconds,
	// seconds ago) are replaced.
	Post        any
	ContentType string `json:"content_type"`
	Want        []struct {
		Status   int      `json:"status,omitempty"` // of the last body
		Body     string   `json:"body,omitempty"`   // a regular expression
		Driving  []string `json:"driving,omitempty"`
		Throttle []string `json:"throttle,omitempty"`
	}
}

type fieldAsk struct {
	VIDs string
	// At is "end" or a list of times. Without it, the question is repeated every Every seconds,
	// about vehicles that reported in between.
	At       json.RawMessage
	Every    float64
	From, To *float64
	Want     []string // "none" is any reason but not_driving, "!jam" all but jam
	Share    *float64 // of the answers that must be acceptable; nil: all
	Why      string
}

type fieldReading struct {
	T       float64 // seconds
	VID     string
	Signals map[string]any
}

type fieldNode struct {
	*process
	token, key string
}

type fieldPlayer struct {
	*fieldCase
	t       *testing.T
	node    *fieldNode
	prefix  string
	now     float64 // Unix seconds
	markers int
	refused string // of ingest that refused readings
}

var wordsOf = map[string]string{"driving1": "normal", "driving2": "slow", "driving3": "jam", "throttle0": "anomaly",
	"throttle1": "normal"}

// Repeat while it is too busy.
func (p *fieldPlayer) until(request func() (status int, err error)) {
	p.t.Helper()
	testkit.NoError(p.t, until(testkit.Patience, func() error {
		status, err := request()
		if err == nil && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
			err = fmt.Errorf("HTTP %d", status)
		}
		return err
	}))
}

func (p *fieldPlayer) post(contentType, body string) (status int, text []byte) {
	p.t.Helper()
	p.until(func() (_ int, err error) {
		status, text, err = p.node.PostAs(p.t.Context(), p.node.key, contentType, body)
		return status, err
	})
	return status, text
}

// In one word, as is the reason why there is none.
func (p *fieldPlayer) answer(question, vid string) string {
	p.t.Helper()
	var a nodeprocess.Answer
	p.until(func() (_ int, err error) {
		path := map[string]string{"driving": drivingPath, "throttle": throttlePath}[question]
		a, err = p.node.ask(path, p.node.token, p.prefix+vid)
		return a.HTTP, err
	})
	switch {
	case a.HTTP != http.StatusOK:
		return fmt.Sprintf("HTTP %d", a.HTTP)
	case a.Status != 1:
		return cmp.Or(a.Reason, "no reason")
	}
	return wordsOf[question+a.Driving+a.Throttle]
}

func (p *fieldPlayer) readings(name string) (all []fieldReading) {
	f, err := os.Open(filepath.Join(fieldDir, name))
	testkit.NoError(p.t, err)
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		r, err = gzip.NewReader(f)
		testkit.NoError(p.t, err)
	}
	const longitude = "Vehicle.CurrentLocation.Longitude"
	for d := json.NewDecoder(r); d.More(); {
		var x fieldReading
		testkit.NoError(p.t, d.Decode(&x))
		if degrees, ok := x.Signals[longitude].(float64); ok && p.Shift != 0 {
			x.Signals[longitude] = math.Round((math.Mod(degrees+p.Shift+3*180, 360)-180)*1e7) / 1e7
		}
		all = append(all, x)
	}
	return all
}

// The marker car comes last: once its trouble code is known, all has arrived.
func (p *fieldPlayer) send(all []fieldReading) {
	if len(all) == 0 {
		return
	}
	p.markers++
	marker := fieldReading{T: math.Inf(-1), VID: "marker" + strconv.Itoa(p.markers), Signals: map[string]any{
		"Vehicle.OBD.ThrottlePosition": 17.6, "Vehicle.OBD.DTCList": []string{"P2135"}}}
	for _, x := range all {
		marker.T = min(0, max(marker.T, x.T))
	}
	size := 4000
	if p.Each {
		size = 1
	}
	for part := range slices.Chunk(append(slices.Clip(all), marker), size) {
		var lines strings.Builder
		for _, x := range part {
			testkit.NoError(p.t, json.NewEncoder(&lines).Encode(map[string]any{"vid": p.prefix + x.VID,
				"time": int64(math.Round((p.now + x.T) * 1000)), "signals": x.Signals}))
		}
		status, text := p.post("application/x-ndjson", lines.String())
		if status != http.StatusAccepted || !strings.Contains(string(text), `"rejected":[]`) {
			p.refused = fmt.Sprintf("; refused with HTTP %d %.200s", status, text)
		}
	}
	testkit.NoError(p.t, until(testkit.Patience, func() error {
		if word := p.answer("throttle", marker.VID); word != "anomaly" && word != "stale" {
			return fmt.Errorf("the readings have not arrived: %s is %s", marker.VID, word)
		}
		return nil
	}))
}

func (p *fieldPlayer) questions(end float64) map[float64][]int {
	all := make(map[float64][]int)
	for i, a := range p.Ask {
		times := []float64{end}
		switch {
		case string(a.At) == `"end"`:
		case a.At != nil:
			testkit.NoError(p.t, json.Unmarshal(a.At, &times))
		case a.Every > 0:
			times = nil
			to := end
			if a.To != nil {
				to = min(*a.To, end)
			}
			if a.From == nil {
				a.From = &a.Every
			}
			for t := *a.From; t <= to; t += a.Every {
				times = append(times, t)
			}
		default:
			p.t.Fatal("a question: got neither at nor every, want one of them")
		}
		for _, t := range times {
			all[t] = append(all[t], i)
		}
	}
	if p.Node == "default" && (len(all) != 1 || all[end] == nil) {
		p.t.Fatalf("a case of the default node: got %d times, want the end alone", len(all))
	}
	return all
}

func (p *fieldPlayer) play() [][]string {
	left := p.readings(p.Samples)
	end := math.Inf(-1)
	for _, x := range left {
		end = max(end, x.T)
	}
	questions := p.questions(end)
	if p.Learn != "" {
		p.send(p.readings(p.Learn))
	}
	if p.Node == "default" {
		p.now = unixSeconds(time.Now()) - 1
	}
	answers, last := make([][]string, len(p.Ask)), make(map[string]float64)
	for _, now := range slices.Sorted(maps.Keys(questions)) {
		var part, later []fieldReading
		for _, x := range left {
			if x.T > now && now < end {
				later = append(later, x)
				continue
			}
			if at, ok := last[x.VID]; !ok || x.T > at {
				last[x.VID] = x.T
			}
			x.T -= end
			part = append(part, x)
		}
		left = later
		p.send(part)
		for _, i := range questions[now] {
			a := &p.Ask[i]
			vids := regexp.MustCompile("^(?:" + cmp.Or(a.VIDs, ".*") + ")$")
			for vid, at := range last {
				if vids.MatchString(vid) && (a.Every == 0 || at > now-a.Every) {
					answers[i] = append(answers[i], p.answer(p.Question, vid))
				}
			}
		}
	}
	return answers
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func fits(word string, want []string) bool {
	if strings.HasPrefix(want[0], "!") {
		return !slices.Contains(want, "!"+word)
	}
	return slices.Contains(want, word) || slices.Contains(want, "none") &&
		!slices.Contains([]string{"normal", "slow", "jam", "anomaly", "not_driving"}, word)
}

func (p *fieldPlayer) judge() (wrong string) {
	if p.Question == "ingest" {
		return p.judgeIngest()
	}
	for i, answers := range p.play() {
		a, share, good, got := p.Ask[i], 1.0, 0, make(map[string]int)
		if a.Share != nil {
			share = *a.Share
		}
		for _, word := range answers {
			got[word]++
			if fits(word, a.Want) {
				good++
			}
		}
		if len(answers) == 0 || float64(good) < share*float64(len(answers))-1e-9 {
			text := fmt.Sprintf(" | want %.0f%% %s, got %v: %s", 100*share, a.Want, got, a.Why)
			wrong += strings.TrimSuffix(text, ": ")
		}
	}
	if wrong != "" {
		wrong += p.refused
	}
	return wrong
}

var fieldNow = regexp.MustCompile(`@NOW([+-]\d+)?@`)

func (p *fieldPlayer) judgeIngest() (wrong string) {
	p.now = unixSeconds(time.Now()) - 2
	posts, ok := p.Post.([]any)
	if !ok {
		posts = []any{p.Post}
	}
	var status int
	var text []byte
	for _, post := range posts {
		body := fieldNow.ReplaceAllStringFunc(fmt.Sprint(post), func(s string) string {
			seconds, _ := strconv.Atoi(strings.Trim(s, "@NOW")) // 0 if there are none
			return strconv.FormatInt(int64((p.now+float64(seconds))*1000), 10)
		})
		status, text = p.post(cmp.Or(p.ContentType, "application/json"), strings.ReplaceAll(body, "@VID@", p.prefix+"car"))
	}
	p.send([]fieldReading{{VID: "last", Signals: map[string]any{"Vehicle.OBD.ThrottlePosition": 17.6}}})
	driving, throttle := p.answer("driving", "car"), p.answer("throttle", "car")
	for _, w := range p.Want {
		if (w.Status == 0 || w.Status == status) && regexp.MustCompile(w.Body).Match(text) &&
			(w.Driving == nil || fits(driving, w.Driving)) && (w.Throttle == nil || fits(throttle, w.Throttle)) {
			return ""
		}
	}
	want, err := json.Marshal(p.Want)
	testkit.NoError(p.t, err)
	return fmt.Sprintf(" | want one of %s, got HTTP %d %.160s driving %s, throttle %s", want, status,
		bytes.TrimSpace(text), driving, throttle)
}

// The wrong cases are those of wrong.txt, so a repair takes its case from the list, and no change
// undoes it.
func TestFieldCases(t *testing.T) {
	testkit.Slow(t, "it starts carstate")
	testkit.NoError(t, buildPlain())
	// At the last full hour, so that all runs have the same quarter hours.
	hour, nodes := time.Now().Truncate(time.Hour), make(map[string]*fieldNode)
	for name, maxAge := range map[string]string{"": "720h", "default": "5m"} {
		p, err := startProgram(plain, t.TempDir(), os.Environ(), "--mqtt-addr", "", "--max-age", maxAge, "--partitions", "1")
		testkit.NoError(t, err)
		t.Cleanup(p.Kill)
		nodes[name] = &fieldNode{p, p.issue(t), p.addSource(t, "field")}
	}
	listed, err := os.ReadFile(filepath.Join(fieldDir, "wrong.txt"))
	testkit.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(fieldDir, "*.json"))
	testkit.NoError(t, err)

	var mu sync.Mutex // guards what follows
	var table []string
	var broken, cases, right int
	of, rightOf := make(map[string]int), make(map[string]int)
	t.Cleanup(func() {
		slices.Sort(table)
		fmt.Printf("%s%d of %d right (", strings.Join(table, ""), right, cases)
		for i, q := range []string{"driving", "throttle", "ingest"} {
			fmt.Printf("%s%s %d/%d", []string{"", ", "}[min(i, 1)], q, rightOf[q], of[q])
		}
		fmt.Printf("); held broken: %d\n", broken)
	})
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.NoError(t, err)
		var c fieldCase
		testkit.NoError(t, json.Unmarshal(text, &c))
		isListed := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(c.Name) + ` `).Match(listed)
		if isListed {
			found++
		}
		t.Run(c.Name+" "+c.Kind, func(t *testing.T) {
			t.Parallel()
			p := fieldPlayer{fieldCase: &c, t: t, node: nodes[c.Node], now: unixSeconds(hour),
				prefix: regexp.MustCompile("[^A-Za-z0-9]").ReplaceAllString(c.Name, "") + "x"}
			if c.Question == "ingest" {
				p.node = nodes["default"]
			}
			wrong := p.judge()
			switch {
			case wrong == "" && isListed:
				t.Errorf("%s is right: take it from %s/wrong.txt", c.Name, fieldDir)
			case wrong != "" && !isListed:
				t.Errorf("%s is wrong, and not in %s/wrong.txt%s", c.Name, fieldDir, wrong)
			}
			mu.Lock()
			defer mu.Unlock()
			cases++
			of[c.Question]++
			if wrong == "" {
				right++
				rightOf[c.Question]++
				return
			}
			table = append(table, fmt.Sprintf("%s | %s%s\n", c.Kind, c.Name, wrong))
			if c.Held {
				broken++
			}
		})
	}
	if n := len(regexp.MustCompile(`(?m)^[^#]`).FindAll(listed, -1)); n != found {
		t.Errorf("%s/wrong.txt: got %d entries, want %d: a line is NAME KIND, of a known case", fieldDir, n, found)
	}
}
