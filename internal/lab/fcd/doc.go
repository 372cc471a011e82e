// Package fcd reads floating car data, what the cars of a fleet report, and labels of the traffic
// around them: tables of comma-separated values with a header, plain or gzip, whose columns are
// found by name.
//
// A fleet file has vehicle,time,latitude,longitude,speed[,heading][,accuracy], ordered by time;
// labels have vehicle,time,truth,sure. Times are in seconds since any moment, speeds in km/h,
// positions and headings in degrees, accuracies in metres.
//
// Errors name the file and the line. They never repeat the content of the line, because a position
// is private.
package fcd
