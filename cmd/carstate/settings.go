package main

import "github.com/alecthomas/kong"

// settings are the defaults of serve for those flags that have another default in demo.
var settings = kong.Vars{
	"max_age": "5m", "log_level": "info", "drain": "5s",
	"query_connections": "16384", "ingest_connections": "4096", "mqtt_connections": "20000", "admin_connections": "512",
}

// demoSettings are the defaults of demo for the flags in [settings]. Readings stay fresh for a day,
// so that queries about the recorded drive are answered as long as somebody tries the demo. Only
// warnings are logged, because log lines appear between the lines that the demo prints. The limits
// on connections suit a process that may open 2,048 files. With drain, a node keeps serving for a
// time until load balancers stop sending to it. In a demo this time is zero, because there is no
// load balancer.
var demoSettings = kong.Vars{
	"max_age": "24h", "log_level": "warn", "drain": "0s",
	"query_connections": "256", "ingest_connections": "256", "mqtt_connections": "256", "admin_connections": "256",
}
