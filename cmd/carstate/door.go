package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/netaddr"
)

type ingestFlags struct {
	Source     string `placeholder:"NAME" help:"Send as this source; by default, a temporary one is added and removed."`
	Key        string `placeholder:"KEY" help:"The source's key; prefer CARSTATE_KEY, which does not appear in process lists."`
	IngestAddr string `default:"127.0.0.1:8081" placeholder:"ADDR" help:"The service's HTTP ingest listener (${default})."`
	IngestURL  string `name:"ingest-url" placeholder:"URL" help:"The HTTP ingest listener as a URL, such as https://cars.example:8081."`
	MqttURL    string `placeholder:"URL" help:"Send by MQTT to this URL instead, such as mqtt://127.0.0.1:1883 or mqtts://cars.example:8883."`
	// CARSTATE_MQTT_ADDR, of serve, must not change where telemetry is sent.
	MqttAddr string `env:"-" placeholder:"ADDR" help:"Send by MQTT to this address on this machine instead, such as 127.0.0.1:1883."`
	CA       string `name:"ca" placeholder:"FILE" help:"Trust this certificate (PEM) in addition to the system's."`
}

func (c *ingestFlags) checkTarget() error {
	switch {
	case c.IngestURL != "" && c.MqttURL != "":
		return usageError("--ingest-url and --mqtt-url are mutually exclusive")
	case !emptyOrURL(c.MqttURL, "mqtt", "mqtts"):
		return usageError("--mqtt-url must be a URL such as mqtt://127.0.0.1:1883 or mqtts://cars.example:8883")
	case !emptyOrURL(c.IngestURL, "http", "https"):
		return usageError("--ingest-url must be a URL such as http://127.0.0.1:8081")
	case c.Source != "" && c.Key == "":
		return usageError("--source needs the key of the source: give --key, or set CARSTATE_KEY")
	case c.Source == "" && c.Key != "":
		return usageError("--key or CARSTATE_KEY is set, and --source is not: give --source NAME, or unset CARSTATE_KEY")
	}
	return nil
}

func emptyOrURL(text string, schemes ...string) bool {
	u, err := url.Parse(text)
	return text == "" || err == nil && u.Host != "" && slices.Contains(schemes, u.Scheme)
}

func (c *ingestFlags) connect(ctx context.Context, as sender.Login) (sender.Sender, error) {
	trust, err := client.Trusting(c.CA)
	if err != nil {
		return nil, err
	}
	switch {
	case c.MqttURL != "":
		return sender.MQTT(ctx, c.MqttURL, as, trust)
	case c.MqttAddr != "" && c.IngestURL == "":
		return sender.MQTT(ctx, "mqtt://"+c.MqttAddr, as, trust)
	}
	return sender.HTTP(cmp.Or(c.IngestURL, netaddr.BaseURL(c.IngestAddr)), as, trust), nil
}
