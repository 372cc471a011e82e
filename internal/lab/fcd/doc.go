// Package fcd reads floating car data: what the cars of a fleet report while they drive,
// and labels of the traffic around them.
//
// Both are tables of comma-separated values with a header line, plain or gzip. Columns are
// found by their names, in any order; other columns are ignored.
//
//	vehicle,time,latitude,longitude,speed[,heading][,accuracy]     a fleet file
//	vehicle,time,truth,sure                                        a file of labels
//
// Times are in seconds since the file's time 0, which may be any moment. The rows of a fleet file
// are ordered by time. Speeds are in km/h, positions and headings in degrees, accuracies in metres.
// A fleet file is streamed: only the names of its vehicles are kept in memory. Errors name the file
// and the line. They never repeat the content of the line, because a position is private.
package fcd
