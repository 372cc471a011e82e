// Package drivelog reads recorded drives: the CSV files of several loggers,
// plain or gzip, known by their header alone.
//
// [Open] and [Read] turn such a file into a [Drive]: rows in order of time,
// each with the readings that its logger took at that time, and the driver's or
// observer's label where the log has one. The files are as loggers leave them:
// blank cells, short rows, clocks that jump, ends cut off. What cannot be
// trusted is left out and counted with its reason, never guessed; one bad cell
// costs that cell, one bad row that row.
//
// Most loggers repeat in each row the last known value of every sensor. Such a
// repetition is no reading. Two sensors that appear to agree in one row may
// have been read many seconds apart, so each reader finds out which cells were
// read anew (polling.go says how, and how surely) and yields only those.
//
// The package must never judge a drive, never invent or carry forward a
// reading, and never learn where its drives go.
package drivelog
