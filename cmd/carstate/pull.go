package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"regexp"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/pull"
	"example.org/carstate/internal/servicelog"
	"example.org/carstate/internal/vehicle"
)

type pullCommand struct {
	formatFlags
	URL         string   `arg:"" help:"The broker: mqtt://HOST, mqtts://HOST, kafka://HOST,…, nats://HOST,… or viss://HOST/PATH."`
	Topic       []string `env:"-" required:"" sep:"none" placeholder:"T" help:"Topic, subject or VISS path to read; may be repeated."`
	Source      string   `required:"" placeholder:"NAME" help:"Send as this source of carstate's own format; its key is in CARSTATE_KEY."`
	IngestURL   string   `name:"ingest-url" default:"http://127.0.0.1:8081" placeholder:"URL" help:"The HTTP ingest listener (${default})."`
	CA          string   `name:"ca" placeholder:"FILE" help:"Trust this certificate (PEM) of the ingest listener in addition to the system's."`
	VID         string   `env:"-" name:"vid" placeholder:"VID" help:"The vehicle of messages that name none, as those of VISS."`
	Group       string   `env:"-" placeholder:"NAME" help:"Name under which the broker keeps the place; by default carstate- and the source."`
	TLS         bool     `env:"-" name:"tls" help:"Use TLS to the broker."`
	BrokerCA    string   `name:"broker-ca" placeholder:"FILE" help:"Trust this certificate (PEM) of the broker in addition to the system's."`
	BrokerCert  string   `and:"cert" placeholder:"FILE" help:"Certificate (PEM) to show to the broker."`
	BrokerKey   string   `and:"cert" placeholder:"FILE" help:"Private key (PEM) of --broker-cert."`
	BrokerCreds string   `placeholder:"FILE" help:"Credentials file of NATS."`
	SASL        string   `name:"sasl" default:"plain" enum:"plain,scram-sha-256,scram-sha-512" help:"How to log in to Kafka: plain, scram-sha-256 or scram-sha-512 (${default})."`
}

func (c *pullCommand) Run(ctx context.Context, w streams) error {
	config := pull.Config{
		Topics: c.Topic, NATSCreds: c.BrokerCreds, SASL: c.SASL,
		Group: cmp.Or(c.Group, "carstate-"+regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(c.Source, "-")),
		User:  os.Getenv("CARSTATE_BROKER_USER"), Password: os.Getenv("CARSTATE_BROKER_PASSWORD"),
		Vehicle: vehicle.ID(c.VID), IngestURL: c.IngestURL, Key: os.Getenv("CARSTATE_KEY"),
	}
	var err error
	if config.Address, err = pull.ParseAddress(c.URL); err != nil {
		return usageError("%v", err)
	}
	if !c.given() && config.Scheme == "viss" {
		c.Format = "viss"
	}
	if config.Format, err = c.parse(); err != nil {
		return err
	}
	switch _, wrong := vehicle.ParseReportingID(c.VID); {
	case config.Key == "":
		return usageError("set CARSTATE_KEY to the key of the source")
	case !emptyOrURL(c.IngestURL, "http", "https"):
		return usageError("--ingest-url must be a URL such as http://127.0.0.1:8081")
	case c.VID != "" && wrong != nil:
		return usageError("--vid: %v", wrong)
	case config.Scheme == "viss" && c.VID == "":
		return usageError("give --vid: the messages of VISS do not name the vehicle")
	case config.Password != "" && config.User == "" && (config.Scheme == "mqtt" || config.Scheme == "kafka"):
		return usageError("CARSTATE_BROKER_PASSWORD needs CARSTATE_BROKER_USER")
	}
	if config.Trust, err = client.Trusting(c.CA); err != nil {
		return err
	}
	if c.TLS || config.Address.TLS || c.BrokerCA != "" || c.BrokerCert != "" {
		if config.TLS, err = client.Trusting(c.BrokerCA); err != nil {
			return err
		}
		if c.BrokerCert != "" {
			pair, err := tls.LoadX509KeyPair(c.BrokerCert, c.BrokerKey)
			if err != nil {
				return fmt.Errorf("--broker-cert and --broker-key: %w", err)
			}
			config.TLS.Certificates = []tls.Certificate{pair}
		}
	}
	config.Log, _ = servicelog.New(w.err, "info", "text")
	pull.Run(ctx, config)
	return nil
}
