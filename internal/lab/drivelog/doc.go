// Package drivelog reads recorded drives: CSV files, which mappings of package format describe, GPX
// and NDJSON, plain or gzip. Known logs are recognized by their header.
//
// Files are read as loggers write them: with blank cells, short rows, clocks that jump, and cut-off
// ends. What cannot be trusted is left out and counted with its reason. Most loggers repeat in each
// row the last value of every sensor, and two sensors that seem to agree may have been read many
// seconds apart; so only cells that were newly read are returned (polling.go).
//
// The package must never judge a drive, invent or repeat a reading, or know where its drives are
// sent.
package drivelog
