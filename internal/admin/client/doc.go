// Package client calls the admin API, for the command line and for tests.
package client
