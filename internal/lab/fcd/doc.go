// Package fcd reads floating car data, and labels of the traffic around the cars, as
// comma-separated values, plain or gzip, whose columns are found by name:
// vehicle,time,latitude,longitude,speed[,heading][,accuracy], ordered by time, and
// vehicle,time,truth,sure. Times are in seconds since any moment, speeds in km/h, positions and
// headings in degrees, accuracies in metres.
//
// Errors name the file and the line, never its content, because a position is private.
package fcd
