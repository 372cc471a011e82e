package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin"
)

// doorFlags say through which front door of a service telemetry goes, and as whom.
type doorFlags struct {
	Source     string `placeholder:"NAME" help:"Send as this source; without, a short-lived one is added and removed."`
	Key        string `placeholder:"KEY" help:"The source's key; better given as CARSTATE_KEY, which no process list shows."`
	IngestAddr string `default:"127.0.0.1:8081" placeholder:"ADDR" help:"The service's HTTP ingest listener (${default})."`
	IngestURL  string `name:"ingest-url" placeholder:"URL" help:"The same as a URL, such as https://cars.example:8081."`
	MqttURL    string `placeholder:"URL" help:"Send by MQTT instead, such as mqtt://127.0.0.1:1883 or mqtts://cars.example:8883."`
	// No environment twin: CARSTATE_MQTT_ADDR is there for serve and must not
	// move anything to another door.
	MqttAddr string `env:"-" placeholder:"ADDR" help:"The same as an address on this machine, such as 127.0.0.1:1883."`
	CA       string `name:"ca" placeholder:"FILE" help:"Trust this certificate (PEM) besides those that the system trusts."`
}

// checkDoor refuses addresses that cannot be meant, before any file is read or anything is sent.
func (c *doorFlags) checkDoor() error {
	if c.IngestURL != "" && c.MqttURL != "" {
		return usageError("--ingest-url and --mqtt-url are two doors: choose one")
	}
	if u, err := url.Parse(c.MqttURL); c.MqttURL != "" && (err != nil || u.Host == "" || u.Scheme != "mqtt" && u.Scheme != "mqtts") {
		return usageError("--mqtt-url must be a URL such as mqtt://127.0.0.1:1883 or mqtts://cars.example:8883")
	}
	if u, err := url.Parse(c.IngestURL); c.IngestURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return usageError("--ingest-url must be a URL such as http://127.0.0.1:8081")
	}
	if (c.Source == "") != (c.Key == "") {
		return usageError("--source and --key go together")
	}
	return nil
}

// temporaryLife outlasts any replay that is not live and bounds the life of a
// source whose removal was prevented.
const temporaryLife = 24 * time.Hour

// sourceLogin is whom telemetry is sent as.
type sourceLogin struct {
	name, key string
	made      time.Time // zero: long ago
}

// spreadTime is how long after a source was made a node may not have heard of it. As a
// rule it takes some milliseconds.
const spreadTime = 10 * time.Second

// spreads reports whether a node has refused the source that may know it soon.
func (l sourceLogin) spreads(err error) bool {
	_, unknown := errors.AsType[sourceUnknown](err)
	return unknown && time.Since(l.made) < spreadTime
}

// withSource calls send as a source for some vehicles that lives as long as the call,
// and no longer than life. Its name begins with what it is for.
func withSource(ctx context.Context, client *admin.Client, what string, of access.Vehicles, life time.Duration, send func(sourceLogin) error) (err error) {
	name := fmt.Sprintf("%s-%d-%d", what, os.Getpid(), time.Now().UnixMilli())
	s, err := client.AddSource(ctx, name, of, time.Now().Add(life))
	if err != nil {
		return err
	}
	defer tidy(ctx, &err, func(ctx context.Context) error {
		_, err := client.RemoveSource(ctx, name)
		return err
	})
	return send(sourceLogin{name, s.Key, time.Now()})
}

// tidyTime is how long a source or token that was made for a while may take to be
// removed. A busy store takes seconds for a write, and who has pressed Ctrl-C waits.
const tidyTime = 10 * time.Second

// tidy removes such a source or token, also after an interrupt, which has ended ctx.
// After another error it goes when it expires.
func tidy(ctx context.Context, err *error, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if failed := remove(ctx); *err == nil {
		*err = failed
	}
}

// connect opens the front door that the flags name.
func (c *doorFlags) connect(ctx context.Context, as sourceLogin) (sender, error) {
	trust, err := trusting(c.CA)
	if err != nil {
		return nil, err
	}
	switch {
	case c.MqttURL != "":
		return newMQTTSender(ctx, c.MqttURL, as, trust)
	case c.IngestURL != "":
		return newHTTPSender(c.IngestURL, as, trust), nil
	case c.MqttAddr != "":
		return newMQTTSender(ctx, "mqtt://"+c.MqttAddr, as, trust)
	}
	return newHTTPSender(baseURL(c.IngestAddr), as, trust), nil
}
