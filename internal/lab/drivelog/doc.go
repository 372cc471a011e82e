// Package drivelog reads recorded drives: CSV by the mappings of package format, GPX and NDJSON,
// plain or gzip. It recognizes known logs by their header.
//
// It reads files as loggers write them, leaves out what cannot be trusted, and counts that with its
// reason. Most loggers repeat every sensor's last value in each row, and sensors that seem to agree
// may have been read seconds apart; so only newly read cells are returned (polling.go).
//
// The package must never judge a drive, invent or repeat a reading, or know where its drives are
// sent.
package drivelog
