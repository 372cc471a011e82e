// Package drivelog reads recorded drives: the CSV files of several loggers, plain or gzip, which
// it recognizes by their header.
//
// [Open] and [Read] turn such a file into a [Drive]: rows in order of time, each with the readings
// that its logger took at that time, and with the label of the driver or observer if the log has
// one. Files are read as loggers write them: with blank cells, short rows, clocks that jump, and
// ends that are cut off. Readings that cannot be trusted are left out and counted with their
// reason; they are never replaced by guesses. An invalid cell makes only this cell unusable, and an
// invalid row only this row.
//
// Most loggers repeat in each row the last known value of every sensor. Such a repetition is not a
// reading, because two sensors that seem to agree in one row may have been read many seconds apart.
// So for each format, the package determines which cells were newly read, and returns only those.
// The comments in polling.go explain the methods, and how certain their results are.
//
// The package must never judge a drive, never invent or repeat a reading, and never know where its
// drives are sent.
package drivelog
