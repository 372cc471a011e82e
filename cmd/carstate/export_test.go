package main

var Run = run
