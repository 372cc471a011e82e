package console

import (
	"crypto/rand"
	"encoding/json/v2"
	"html/template"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/inwords"
	"example.org/carstate/internal/ops"
)

func (c *Console) parsePages() map[string]*template.Template {
	pages := make(map[string]*template.Template)
	base := template.Must(template.New("layout.html.tmpl").Funcs(c.functions()).ParseFS(files,
		"files/layout.html.tmpl", "files/parts.html.tmpl"))
	for _, name := range pageNames {
		pages[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "files/"+name+".html.tmpl"))
	}
	return pages
}

var pageNames = []string{"login", "fleet", "vehicles", "vehicle", "roads", "forgotten", "tokens", "token", "sources",
	"source", "operators", "audit", "secret", "confirm", "failed"}

func (c *Console) functions() template.FuncMap {
	return template.FuncMap{
		"plural": func(n int, one, many string) string {
			return inwords.Count(n) + " " + map[bool]string{true: one, false: many}[n == 1]
		},
		"ago":     func(t time.Time) string { return inwords.Ago(c.Now().Sub(t)) },
		"for":     func(t time.Time) string { return inwords.Duration(max(0, c.Now().Sub(t))) },
		"until":   func(t time.Time) string { return inwords.Until(t.Sub(c.Now())) },
		"lasting": func(d time.Duration) string { return inwords.Duration(d.Round(time.Second)) },
		"seconds": inwords.Seconds,
		"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" },
		"day":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") + " UTC" },
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04") },
		"field":   timeField,
		"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"count":   inwords.Count[int],
		"calls":   inwords.Count[int64],
		"total":   func(f float64) string { return inwords.Count(int64(f)) },
		"bytes":   inwords.Bytes,
		"number":  inwords.Number,
		"percent": func(share float64) string { return inwords.Number(100 * share) },
		"towards": towards,
		"named":   func(class string) string { return classNames[class] },
		"limit":   inwords.RateLimit,
		"mark":    rand.Text,
		"receipt": func(r access.ForgetReceipt) (string, error) {
			text, err := json.Marshal(r)
			return string(text), err
		},
		"chosen":  chosen,
		"jam":     func() float64 { return 100 * driving.JamShare }, // the highest speed in a jam, in % of free flow
		"slow":    func() float64 { return 100 * driving.SlowShare },
		"asset":   func(name string) string { return "/assets/" + name + "?v=" + assetVersion },
		"version": func() string { return c.Version },
		"docs":    func() string { return c.DocsURL },
		"queries": func() string { return c.QueryURL },
		"began":   func() time.Time { return c.Monitor.began }, // since then, this node has seen sources

		"actions": func() []string { return ops.Actions },
		"latest":  func(all []time.Time) time.Time { return slices.MaxFunc(all, time.Time.Compare) },
	}
}

func timeField(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strings.TrimSuffix(t.UTC().Format("2006-01-02T15:04:05"), ":00")
}
