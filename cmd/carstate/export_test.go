package main

// Run is run, for the tests from outside.
var Run = run
