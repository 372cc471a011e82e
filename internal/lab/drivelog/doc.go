// Package drivelog reads recorded drives: CSV files, which mappings of package format describe, GPX
// and NDJSON, plain or gzip. Known logs are recognized by their header.
//
// Files are read as loggers write them: with blank cells, short rows, clocks that jump, and ends that
// are cut off. Readings that cannot be trusted are left out and counted with their reason. Most
// loggers repeat in each row the last known value of every sensor. Such a repetition is not a reading,
// because two sensors that seem to agree in one row may have been read many seconds apart. So only
// cells that were newly read are returned (polling.go).
//
// The package must never judge a drive, never invent or repeat a reading, and never know where its
// drives are sent.
package drivelog
