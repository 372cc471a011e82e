// Package client calls the admin API. The command line and tests use it.
package client
